import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { locateReaderTool } from '../../consumer/reader-tools.ts';
import { cacheFolder } from '../../e2e/node/tools.ts';
import {
  type DialectDevice,
  deviceInfoDir,
  deviceInfoMode,
  formatEnv,
  viewInDialects,
} from '../../src/dialects/index.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const vfs: DialectDevice[] = [1, 2].map((index) => ({
  name: `0000-3b-02-${index}`,
  pciAddress: `0000:3b:02.${index}`,
  pfAddress: '0000:3b:00.0',
  access: { vfio: { device: `/dev/vfio/4${index}` }, nodes: ['/dev/vfio/vfio', `/dev/vfio/4${index}`] },
}));
const resourceName = 'intel.com/sriov_dpdk';
const tool = (name: 'jq' | 'python3') => locateReaderTool(name, cacheFolder(process.env), process.env);

/** Runs a program with the variables of a container. */
function run(program: string, args: string[], env: Record<string, string>): string {
  const PATH = `${dirname(tool('jq'))}:${process.env.PATH}`;
  const { stdout, stderr, status } = spawnSync(program, args, {
    env: { PATH, ...env },
    encoding: 'utf8',
    timeout: 30_000,
  });
  expect({ stderr, status }).toEqual({ stderr: '', status: 0 });
  return stdout.trim();
}

/** Each consumer does what the programs of its dialect do, and knows nothing of us. */
describe('an unmodified consumer', () => {
  it('of the device plugin: makes arguments for DPDK of the addresses, and finds the vfio files', () => {
    const { env } = viewInDialects({ devicePlugin: { resourceName } }, vfs);
    const script = `
      for pci in $(echo "$PCIDEVICE_INTEL_COM_SRIOV_DPDK" | tr , ' '); do
        group=$(echo "$PCIDEVICE_INTEL_COM_SRIOV_DPDK_INFO" | jq -r --arg pci "$pci" '.[$pci].vfio["dev-mount"]')
        echo "-a $pci $group"
      done`;
    expect(run('sh', ['-euc', script], env)).toBe('-a 0000:3b:02.1 /dev/vfio/41\n-a 0000:3b:02.2 /dev/vfio/42');
  });

  /** app-netutil reads its own environment from /proc and takes each part of each PCIDEVICE variable for an address. */
  const appNetutil = `
import re
variables = [entry.split("=") for entry in open("/proc/self/environ").read().split("\\0")]
parts = [part for pair in variables if len(pair) == 2 and pair[0].startswith("PCIDEVICE") for part in pair[1].split(",")]
print(*parts)`;

  it('like app-netutil: finds the addresses, and nothing else without _INFO', () => {
    const { env } = viewInDialects({ devicePlugin: { resourceName, info: false } }, vfs);
    expect(run(tool('python3'), ['-c', appNetutil], env)).toBe('0000:3b:02.1 0000:3b:02.2');
    // What the configuration warns of.
    const withInfo = viewInDialects({ devicePlugin: { resourceName } }, vfs).env;
    expect(run(tool('python3'), ['-c', appNetutil], withInfo)).toContain('{');
  });

  it('of dra-driver-sriov: finds addresses and vfio files by the prefix of the variable', () => {
    const { env } = viewInDialects({ sriovNetwork: {} }, vfs);
    expect(run('sh', ['-euc', 'env | sort | sed -n "s/^SRIOVNETWORK_VF_DEVICE_.*=//p"'], env)).toBe(
      '0000:3b:02.1\n0000:3b:02.2',
    );
    expect(run('sh', ['-euc', 'echo "$SRIOVNETWORK_0000_3b_02_1_VFIO_DEVICE"'], env)).toBe('/dev/vfio/41');
  });

  it('of device-info, as Multus: finds the file by resource name and device id', () => {
    using dir = tempDir();
    for (const { name, text } of viewInDialects({ deviceInfo: { resourceName } }, vfs).deviceInfoFiles) {
      const path = join(dir.path, deviceInfoDir, name);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, text);
      chmodSync(path, deviceInfoMode);
    }
    const script = `
      file="$root/var/run/k8s.cni.cncf.io/devinfo/dp/$(echo "$resource" | tr / -)-$id-device.json"
      jq -r '[.type, .version, .pci["pci-address"], .pci["pf-pci-address"]] | join(" ")' "$file"`;
    const env = { root: dir.path, resource: resourceName, id: '0000:3b:02.2' };
    expect(run('sh', ['-euc', script], env)).toBe('pci 1.1.0 0000:3b:02.2 0000:3b:00.0');
  });

  it('gets the variables as CDI writes them', () => {
    const { env } = viewInDialects({ devicePlugin: { resourceName }, sriovNetwork: {} }, vfs);
    for (const assignment of formatEnv(env)) {
      const name = assignment.split('=', 1)[0] ?? '';
      expect(run('sh', ['-euc', `printenv ${name}`], { [name]: assignment.slice(name.length + 1) })).toBe(env[name]);
    }
  });
});
