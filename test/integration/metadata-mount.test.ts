import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  ClaimMetadata,
  type DeviceMetadata,
  layouts,
  readRequestMetadata,
  watchRequestMetadata,
} from '../../src/framework/metadata/index.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const claim = { namespace: 'default', name: 'fast-net', uid: 'uid-1' };
const record = {
  claim,
  podUid: 'pod-1',
  requests: { vf: { name: 'vf', devices: [{ pool: 'node-1', name: 'dev-1' }] } },
};
const withIp = (n: number): DeviceMetadata[] => [
  { driver: 'd.example', pool: 'node-1', name: 'dev-1', networkData: { ips: [`192.0.2.${n}/24`] } },
];

function run(command: string, ...args: string[]): void {
  const { status, stderr } = spawnSync(command, args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${stderr}`);
}

describe('the files of a claim, bind-mounted as a runtime does it', () => {
  let stack: DisposableStack;
  let dir: string;
  let root: string;
  let metadata: ClaimMetadata;

  beforeEach(async () => {
    stack = new DisposableStack();
    dir = stack.use(tempDir()).path;
    chmodSync(dir, 0o755);
    root = join(dir, 'root');
    metadata = new ClaimMetadata({
      driver: 'd.example',
      dataDir: join(dir, 'data'),
      cdiDir: join(dir, 'cdi'),
      attributesDir: join(dir, 'attributes'),
      downwardApiDir: join(dir, 'pods'),
      layouts: Object.values(layouts),
    });
    await metadata.prepare(record, new Map());
  });
  afterEach(() => stack.dispose());

  function mounts(): { hostPath: string; containerPath: string; options: string[] }[] {
    const spec = readFileSync(join(dir, 'cdi/d.example_metadata_uid-1_vf.json'), 'utf8');
    return JSON.parse(spec).devices[0].containerEdits.mounts;
  }

  function mountAll(): void {
    for (const { hostPath, containerPath, options } of mounts()) {
      const target = join(root, containerPath);
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, '');
      run('mount', '--bind', hostPath, target);
      stack.defer(() => run('umount', target));
      run('mount', '-o', `remount,${options.join(',')}`, target);
    }
  }

  it('cannot be mounted before the first update, all but the one that is there from prepare on', () => {
    expect(mounts().map(({ hostPath }) => existsSync(hostPath))).toEqual([false, false, true, false]);
    expect(mountAll).toThrow('mount --bind');
  });

  it('show every update through mounts that were there before it, and the kernel reports it', async () => {
    await metadata.update(claim, 'vf', withIp(1));
    mountAll();
    const states = watchRequestMetadata({ claim: 'fast-net', request: 'vf' }, { root, pollMs: 3_600_000 });
    await states.next();
    for (let generation = 2; generation < 5; generation++) {
      const pending = states.next();
      await metadata.update(claim, 'vf', withIp(generation));
      expect((await pending).value).toMatchObject({ files: [{ generation }], devices: withIp(generation) });
      expect(readFileSync(join(root, 'etc/dra/fast-net.vf.json'), 'utf8')).toContain(`192.0.2.${generation}/24`);
    }
    await states.return(undefined as never);
  });

  it('cannot be written by the container, and can be read by user 107 as KubeVirt needs it', async () => {
    await metadata.update(claim, 'vf', withIp(1));
    mountAll();
    for (const { containerPath } of mounts()) {
      const target = join(root, containerPath);
      expect(() => writeFileSync(target, 'x')).toThrow('EROFS');
      const { status, stdout } = spawnSync('cat', [target], { uid: 107, gid: 107, encoding: 'utf8' });
      expect([status, stdout.length > 0]).toEqual([0, true]);
    }
  });

  it('stay as they are in a container that runs on after withdraw and unprepare', async () => {
    await metadata.update(claim, 'vf', withIp(1));
    mountAll();
    await metadata.withdraw(claim);
    await metadata.unprepare(claim);
    expect(await readRequestMetadata({ claim: 'fast-net', request: 'vf' }, { root })).toMatchObject({
      devices: withIp(1),
    });
  });
});
