import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadYaml } from '@kubernetes/client-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { locateReaderTool } from '../../programs/reader-tools.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { ContainerRoot, vf } from '../integration/programs/container-root.ts';

const examples = fileURLToPath(new URL('../../examples', import.meta.url));

/** The example is run as it is, against files that the driver's own code wrote. */
describe('virt_launcher.py', () => {
  let root: ContainerRoot;
  beforeEach(() => {
    root = new ContainerRoot();
  });
  afterEach(() => root[Symbol.dispose]());

  const vmi = loadYaml<{ spec: object }>(
    readFileSync(join(examples, 'kubevirt-vmi.yaml'), 'utf8').split('\n---\n')[1] ?? '',
  );
  const launch = () => {
    const file = root.write('vmi.json', JSON.stringify({ spec: vmi.spec }));
    const python = locateReaderTool('python3', cacheFolder(process.env), process.env);
    return spawnSync(python, [join(examples, 'consumers/python/virt_launcher.py'), file], {
      env: { ...process.env, METADATA_ROOT: root.path },
      encoding: 'utf8',
      timeout: 110_000,
    });
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

  it('can read the metadata file as the user that virt-launcher runs as', async () => {
    await root.prepare({ claim: 'vm-nic-x', podClaimName: 'nic', devices: [vf(5)] });
    root.open();
    for (const file of root.files()) {
      const path = join(root.path, file);
      const { stdout, status } = spawnSync('cat', [path], { uid: 107, gid: 107, encoding: 'utf8' });
      expect({ stdout, status }).toEqual({ stdout: readFileSync(path, 'utf8'), status: 0 });
    }
  });
});
