import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { builtDriver } from '../../e2e/node/built-driver.ts';
import type { Finding } from '../../src/cli/finding.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const mainPath = await builtDriver();

/** What `netdra doctor` finds when it is started by a command that takes something from it. */
function doctor(before: string, flags: string[] = []): (check: string) => Finding | undefined {
  // Problems are to be expected: here is no kubelet.
  const script = `${before} "$@" || [ $? = 1 ]`;
  const command = [process.execPath, mainPath, 'doctor', '-o', 'json', ...flags];
  const findings: Finding[] = JSON.parse(
    execFileSync('unshare', ['--mount', '--propagation=private', 'sh', '-euc', script, 'sh', ...command]).toString(),
  );
  return (check) => findings.find((finding) => finding.check === check);
}

describe('netdra doctor', () => {
  it('reports which capabilities a root process has or lacks, and whether /proc/sys is read-only', () => {
    const plain = doctor('');
    for (const check of ['capabilities', 'sysctls']) expect(plain(check), check).toMatchObject({ level: 'ok' });
    const without = doctor('setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin');
    expect(without('capabilities')).toMatchObject({
      level: 'problem',
      message: 'CAP_SYS_ADMIN is missing: the network namespaces of pods cannot be entered',
    });
    const readOnly = 'mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys;';
    expect(doctor(readOnly)('sysctls')).toMatchObject({
      level: 'problem',
      message: '/proc/sys/net/ipv4/conf/lo/arp_notify cannot be written (EROFS): interfaces of pods cannot be set up',
    });
  });

  it('detects whether mounts of the host become visible in its own mount namespace', () => {
    using dir = tempDir();
    const flags = [`--netns-dir=${dir.path}`];
    const mount = (propagation: string) =>
      `mount -t tmpfs none '${dir.path}'; mount --make-shared '${dir.path}'; unshare --mount --propagation=${propagation}`;
    expect(doctor(mount('slave'), flags)('network namespaces')).toMatchObject({ level: 'ok' });
    expect(doctor(mount('private'), flags)('network namespaces')).toMatchObject({
      level: 'problem',
      fix: `mount ${dir.path} with mountPropagation: HostToContainer`,
    });
  });

  it('detects a directory on a read-only file system', () => {
    using dir = tempDir();
    const plugins = join(dir.path, 'plugins');
    mkdirSync(plugins);
    const flags = [`--kubelet-plugins-dir=${plugins}`];
    expect(doctor('', flags)('plugin directory')).toMatchObject({ level: 'ok' });
    const find = doctor(`mount --bind '${plugins}' '${plugins}'; mount -o remount,bind,ro '${plugins}';`, flags);
    expect(find('plugin directory')).toMatchObject({
      level: 'problem',
      message: `${plugins}/sriov.netdra.dev cannot be created in ${plugins} (EROFS)`,
      fix: 'mount it writable',
    });
  });

  it('prints colours only on a terminal, and never with NO_COLOR', () => {
    const command = `'${process.execPath}' '${mainPath}' doctor --cri-socket=/nowhere --nri-socket=/nowhere || true`;
    const onTerminal = (env: Record<string, string>) => {
      // Node.js takes machines that set CI for ones without colours.
      const { NO_COLOR: _, FORCE_COLOR: __, CI: ___, ...rest } = process.env;
      const options = { env: { ...rest, TERM: 'xterm', ...env } };
      return execFileSync('script', ['-qec', command, '/dev/null'], options).toString();
    };
    expect(onTerminal({})).toContain('\u001b[31mproblem\u001b[39m');
    expect(onTerminal({ NO_COLOR: '1' })).toMatch(/^problem {2}NRI: off/m);
    expect(execFileSync('sh', ['-c', command]).toString()).toMatch(/^problem {2}NRI: off/m);
  });
});
