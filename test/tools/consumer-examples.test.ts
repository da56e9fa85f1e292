import { spawnSync } from 'node:child_process';
import { copyFileSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadYaml } from '@kubernetes/client-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { locateReaderTool } from '../../programs/reader-tools.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { tempDir } from '../doubles/temp-dir.ts';
import { ContainerRoot, vf } from '../integration/programs/container-root.ts';

const examples = fileURLToPath(new URL('../../examples', import.meta.url));
const consumers = join(examples, 'consumers');
const tool = (name: Parameters<typeof locateReaderTool>[0]) =>
  locateReaderTool(name, cacheFolder(process.env), process.env);

/** The readers are run as they are, against files that the driver's own code wrote. */
describe('the example readers', () => {
  let root: ContainerRoot;
  beforeEach(() => {
    root = new ContainerRoot();
  });
  afterEach(() => root[Symbol.dispose]());

  const start = (program: string, args: string[], env: NodeJS.ProcessEnv = {}) =>
    spawnSync(program, args, {
      env: { ...process.env, METADATA_ROOT: root.path, ...env },
      encoding: 'utf8',
      timeout: 110_000,
    });
  const output = (...call: Parameters<typeof start>) => {
    const { stdout, stderr, status } = start(...call);
    expect({ stderr, status }).toEqual({ stderr: '', status: 0 });
    return stdout.trim().split('\n');
  };
  const facts = (index: number) => `0000:3b:02.${index} net${index} 02:00:00:00:00:0${index}`;

  describe('in Python', () => {
    const read = (claim: string) => output(tool('python3'), [join(consumers, 'read_metadata.py'), claim, 'vf']);

    it('finds a claim, a template claim, and the path of the KEP', async () => {
      await root.prepare({ claim: 'fast-net', devices: [vf(1)], layouts: ['v1'] });
      await root.prepare({ claim: 'a-nic-x', podClaimName: 'nic', devices: [vf(2)], layouts: ['v1'] });
      await root.prepare({ claim: 'old', devices: [vf(3)], layouts: ['kep'] });
      expect(read('fast-net')).toEqual([`${facts(1)} 192.0.2.1/24 2001:db8::1/64`]);
      expect(read('nic')).toEqual([`${facts(2)} 192.0.2.2/24 2001:db8::2/64`]);
      expect(read('old')).toEqual([`${facts(3)} 192.0.2.3/24 2001:db8::3/64`]);
    });

    it('merges drivers, accepts trailing blanks, and skips unknown versions', async () => {
      const update = await root.prepare({ claim: 'nic', devices: [vf(1)], driver: 'a.example' });
      await update([{ ...vf(1), networkData: {} }]);
      await root.prepare({ claim: 'nic', devices: [vf(2)], driver: 'b.example' });
      const [file = ''] = root.files().filter((path) => path.includes('resourceclaims/') && path.includes('b.example'));
      const text = readFileSync(join(root.path, file), 'utf8');
      root.write(file, text.replace('/v1beta1', '/v9'));
      expect(read('nic')).toEqual(['0000:3b:02.1 - -', `${facts(2)} 192.0.2.2/24 2001:db8::2/64`]);
    });
  });

  it('in Go: finds a claim, a template claim, and several drivers', async () => {
    await root.prepare({ claim: 'fast-net', devices: [vf(1)], driver: 'a.example' });
    await root.prepare({ claim: 'fast-net', devices: [vf(3)], driver: 'b.example' });
    await root.prepare({ claim: 'a-nic-x', podClaimName: 'nic', devices: [vf(2)] });
    using dir = tempDir();
    // Kept from run to run: compiling Go's own packages takes a minute.
    const goCache = join(cacheFolder(process.env), 'go-examples');
    const env = { GOCACHE: goCache, GOPROXY: 'off', GOFLAGS: '-mod=mod', HOME: dir.path };
    // Built aside: the folder of the example stays as it is.
    for (const file of ['main.go', 'go.mod']) copyFileSync(join(consumers, 'go', file), join(dir.path, file));
    const program = join(dir.path, 'metadata');
    const go = (...args: string[]) =>
      spawnSync(tool('go'), args, { cwd: dir.path, env: { ...process.env, ...env }, encoding: 'utf8' });
    expect(go('vet', '.')).toMatchObject({ status: 0 });
    expect(go('build', '-o', program, '.')).toMatchObject({ status: 0 });
    expect(output(program, ['fast-net', 'vf'])).toEqual([
      `${facts(1)} [192.0.2.1/24 2001:db8::1/64]`,
      `${facts(3)} [192.0.2.3/24 2001:db8::3/64]`,
    ]);
    expect(output(program, ['nic', 'vf'])).toEqual([`${facts(2)} [192.0.2.2/24 2001:db8::2/64]`]);
    expect(start(program, ['nic', 'other'])).toMatchObject({ status: 1 });
  });

  it('in shell with jq: reads layout kep by the paths and fields of the KEP', async () => {
    await root.prepare({ claim: 'sriov-vf-claim', devices: [vf(1)], request: 'network-request', layouts: ['kep'] });
    const jqFolder = join(tool('jq'), '..');
    const script = join(consumers, 'read-metadata.sh');
    const env = { PATH: `${jqFolder}:${process.env.PATH}` };
    expect(output(script, ['sriov-vf-claim', 'network-request'], env)).toEqual([`${facts(1)} 192.0.2.1/24`]);
    expect(start(script, ['sriov-vf-claim', 'no-request'], env).status).not.toBe(0);
  });

  describe('as virt-launcher', () => {
    const vmi = loadYaml<{ spec: object }>(
      readFileSync(join(examples, 'kubevirt-vmi.yaml'), 'utf8').split('\n---\n')[1] ?? '',
    );
    const launch = (spec: object = vmi.spec) => {
      const file = root.write('vmi.json', JSON.stringify({ spec }));
      return start(tool('python3'), [join(consumers, 'virt_launcher.py'), file]);
    };

    it('creates a host device from the VF of the claim in kubevirt-vmi.yaml', async () => {
      await root.prepare({ claim: 'vm-nic-x', podClaimName: 'nic', devices: [vf(5)] });
      const { stdout, status } = launch();
      expect(status).toBe(0);
      expect(stdout).toContain("<address domain='0x0000' bus='0x3b' slot='0x02' function='0x5'/>");
    });

    it('rejects what virt-launcher rejects', async () => {
      expect(launch().stderr).toContain('nic/vf: 0 metadata files, exactly one driver is supported');
      await root.prepare({ claim: 'vm-nic-x', podClaimName: 'nic', devices: [vf(1), vf(2)] });
      expect(launch().stderr).toContain('nic/vf: 2 devices, exactly one is supported');
      await root.prepare({ claim: 'vm-nic-x', podClaimName: 'nic', devices: [vf(1)], driver: 'other.example' });
      expect(launch().stderr).toContain('nic/vf: 2 metadata files, exactly one driver is supported');
    });

    it('can read the file as its user', async () => {
      await root.prepare({ claim: 'vm-nic-x', podClaimName: 'nic', devices: [vf(5)] });
      root.open();
      for (const file of root.files()) {
        const path = join(root.path, file);
        const { stdout, status } = spawnSync('cat', [path], { uid: 107, gid: 107, encoding: 'utf8' });
        expect({ stdout, status }).toEqual({ stdout: readFileSync(path, 'utf8'), status: 0 });
      }
    });
  });
});
