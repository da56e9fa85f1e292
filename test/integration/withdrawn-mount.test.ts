import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ClaimMetadata, layouts } from '../../src/framework/metadata/index.ts';
import { tempDir } from '../doubles/temp-dir.ts';

it('a withdrawn metadata file is empty in running containers, cannot be mounted, and returns with the next update', async () => {
  using dir = tempDir();
  using stack = new DisposableStack();
  const claim = { namespace: 'default', name: 'left', uid: 'u' };
  const devices = [{ driver: 'd.example', pool: 'p', name: 'd' }];
  const start = () =>
    new ClaimMetadata({
      enabled: true,
      driver: 'd.example',
      dataDir: dir.path,
      cdiDir: join(dir.path, 'cdi'),
      layouts: [layouts.kep],
    });
  const mount = (target: string) => {
    writeFileSync(target, '');
    execFileSync('mount', ['--bind', '-o', 'ro', path, target], { stdio: 'pipe' });
    stack.defer(() => execFileSync('umount', [target]));
  };
  const path = join(dir.path, 'dra-device-metadata/default_left/vf/metadata-kep.json');
  const metadata = start();
  await metadata.prepare({ claim, requests: { vf: { name: 'vf', devices: [{ pool: 'p', name: 'd' }] } } }, new Map());
  await metadata.update(claim, 'vf', devices);
  const [running, later] = [join(dir.path, 'running'), join(dir.path, 'later')];
  mount(running);
  const seen = () => readFileSync(running, 'utf8').trim();

  await metadata.withdraw(claim);
  expect(seen()).toBe('');
  expect(() => mount(later)).toThrow(/does not exist|No such file/i);

  await start().update(claim, 'vf', devices);
  expect(JSON.parse(seen())).toMatchObject({ metadata: { generation: 2 } });
  mount(later);
  expect(readFileSync(later, 'utf8')).toBe(readFileSync(running, 'utf8'));

  await metadata.withdraw(claim);
  await metadata.unprepare(claim);
  expect([seen(), existsSync(join(path, '../../..'))]).toEqual(['', true]);
  expect(existsSync(join(path, '../..'))).toBe(false);
});
