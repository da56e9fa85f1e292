import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { locateReaderTool } from '../../programs/reader-tools.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { DeviceInfoFiles, type DialectDevice, formatEnv, viewInDialects } from '../../src/driver/dialects/index.ts';
import { tempDir } from '../doubles/temp-dir.ts';
import { dialectConsumers } from './programs/dialect-consumers.ts';

const vfs: DialectDevice[] = [1, 2].map((index) => ({
  name: `0000-3b-02-${index}`,
  pciAddress: `0000:3b:02.${index}`,
  pfAddress: '0000:3b:00.0',
  access: { vfio: { device: `/dev/vfio/4${index}` }, nodes: ['/dev/vfio/vfio', `/dev/vfio/4${index}`] },
}));
const resourceName = 'intel.com/sriov_dpdk';

/** Runs a script with the variables of a container. */
function run(script: string, env: Record<string, string>): string[] {
  const jq = locateReaderTool('jq', cacheFolder(process.env), process.env);
  const { stdout, stderr, status } = spawnSync('sh', ['-euc', script], {
    env: { PATH: `${dirname(jq)}:${process.env.PATH}`, ...env },
    encoding: 'utf8',
    timeout: 30_000,
  });
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 });
  return stdout.trim().split('\n');
}

/** On what real VFs would give; on a real runtime: e2e/cluster/cases/installed-driver.ts, e2e/vm/cases/dpdk.test.ts. */
describe('an unmodified consumer', () => {
  it('of the device plugin: makes arguments for DPDK of the addresses, and finds the vfio files', () => {
    const { env } = viewInDialects({ devicePlugin: { resourceName } }, vfs);
    expect(run(dialectConsumers.devicePlugin, env)).toEqual([
      '-a 0000:3b:02.1 /dev/vfio/41',
      '-a 0000:3b:02.2 /dev/vfio/42',
    ]);
  });

  it('like app-netutil: finds the addresses, and nothing else without _INFO', () => {
    const { env } = viewInDialects({ devicePlugin: { resourceName, info: false } }, vfs);
    expect(run(dialectConsumers.appNetutil, env)).toEqual(['0000:3b:02.1', '0000:3b:02.2']);
    // What the configuration warns of.
    const withInfo = viewInDialects({ devicePlugin: { resourceName } }, vfs).env;
    expect(run(dialectConsumers.appNetutil, withInfo).join()).toContain('{');
  });

  it('of dra-driver-sriov: finds addresses and vfio files by the prefix of the variable', () => {
    const { env } = viewInDialects({ sriovNetwork: {} }, vfs);
    expect(
      run(dialectConsumers.sriovNetwork, { ...env, SRIOVNETWORK_PCI_ADDRESSES: '0000:3b:02.1,0000:3b:02.2' }),
    ).toEqual(['0000:3b:02.1 /dev/vfio/41', '0000:3b:02.2 /dev/vfio/42', 'pod 0000:3b:02.1 0000:3b:02.2']);
  });

  it('of device-info, as Multus: finds the file by resource name and device id', async () => {
    using dir = tempDir();
    const root = join(dir.path, 'dp');
    const files = new DeviceInfoFiles({ dir: root, recordDir: join(dir.path, 'records') });
    await files.write('uid', viewInDialects({ deviceInfo: { resourceName } }, vfs).deviceInfoFiles);
    expect(run(dialectConsumers.multus, { root, resource: resourceName, id: '0000:3b:02.2' })).toEqual([
      'pci 1.1.0 0000:3b:02.2 0000:3b:00.0',
    ]);
  });

  it('gets the variables as CDI writes them', () => {
    const { env } = viewInDialects({ devicePlugin: { resourceName }, sriovNetwork: {} }, vfs);
    for (const assignment of formatEnv(env)) {
      const name = assignment.split('=', 1)[0] ?? '';
      expect(run(`printenv ${name}`, { [name]: assignment.slice(name.length + 1) })).toEqual([env[name]]);
    }
  });
});
