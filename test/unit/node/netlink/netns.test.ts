import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const source = (file: string) => JSON.stringify(join(import.meta.dirname, '../../../../src/node/netlink', file));

/** Opens a namespace in both ways while the process cannot open any more files, and prints the errors. */
const script = `
  import { openSync } from 'node:fs';
  import { NetnsHandle } from ${source('netns.ts')};
  import { RtnlRequests } from ${source('rtnl-requests.ts')};
  const netns = { path: '/run/netns/pod', fd: NetnsHandle.own().fd };
  const errors = [];
  const report = ({ message, path, errno, hint }) => errors.push({ message, path, errno, hint });
  try { for (;;) openSync('/dev/null'); } catch {}
  try { NetnsHandle.open('/proc/self/ns/net'); } catch (error) { report(error); }
  await new RtnlRequests({}).changeInto(netns, () => {}).catch(report);
  console.log(JSON.stringify(errors));
`;

it('NetnsHandle names the namespace and the limit if the process has too many open files', () => {
  const limited = ['-c', 'ulimit -n 64; exec "$@"', 'sh', process.execPath, '--input-type=module', '--eval', script];
  const { stdout, stderr } = spawnSync('sh', limited, { encoding: 'utf8' });
  expect(stderr).toBe('');
  const limit = { errno: 'EMFILE', hint: expect.stringContaining('limit of open files') };
  expect(JSON.parse(stdout)).toEqual(
    ['/proc/self/ns/net', '/run/netns/pod'].map((path) => ({
      message: `cannot open network namespace ${path}`,
      path,
      ...limit,
    })),
  );
});
