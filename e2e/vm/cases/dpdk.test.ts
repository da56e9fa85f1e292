import { describe, expect } from 'vitest';
import { exec, runContainer } from '../../node/pod.ts';
import { type ClaimConfig, classConfig, vfConfig } from '../vf-config.ts';
import { type VfState, vfAt } from '../vfs.ts';
import { type Pod, type RunningPod, readMetadata, type VmNode } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** Mounts of the guest's DPDK, as if it were in the image, and netdra-metadata: libraries and programs, read-only. */
const dpdkMounts = [
  ['/usr', '/usr'],
  ['/usr/lib', '/lib'],
  ['/usr/lib64', '/lib64'],
  [process.env.NETDRA_TOOLS, '/netdra'],
].map(([hostPath = '', containerPath = '']) => ({ hostPath, containerPath, readonly: true }));

/**
 * Without huge pages every page is a separate mapping, of which vfio allows 65,535: 64 MiB are enough and far below
 * that.
 */
const ealOptions = '-l 0,1 --no-huge -m 64 --iova-mode=va --no-telemetry';
const testpmdOptions = '-i --total-num-mbufs=2048';

/** A pod for DPDK whose container waits for its entry point. */
async function startDpdk(node: VmNode, name: string, vfs: VfState | VfState[], config: ClaimConfig[]) {
  const pod: Pod = node.createPod(name, vfs, config);
  const { bench } = node;
  const sandbox = await bench.startPod(pod);
  const { cri } = bench.containerd;
  const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, 'main');
  const id = await runContainer(cri, sandbox, { name: 'main', cdiDevices, mounts: dpdkMounts });
  const container = { id, exec: (...command: string[]) => exec(cri, id, command, 200) };
  const running: RunningPod = { pod, sandbox, container };
  /** Runs an entry point, whose testpmd prints its ports and ends. @returns their MAC addresses, in testpmd's form */
  const portsOf = async (entryPoint: string): Promise<string[]> => {
    const script = `export PATH=/netdra:/usr/sbin:/usr/bin:/bin; printf 'show port info all\\nquit\\n' | ${entryPoint}`;
    const { stdout, stderr } = await container.exec('sh', '-c', script);
    const found = [...stdout.matchAll(/^MAC address: ([0-9A-F:]{17})/gm)].map(([, mac = '']) => mac.toLowerCase());
    expect(found.length, `${stdout}\n${stderr}`).toBeGreaterThan(0);
    return found;
  };
  return { ...running, portsOf };
}

describe('a VF for DPDK', () => {
  it('is the one that dpdk-testpmd gets from netdra-metadata, and from the variables of the device plugin', async ({
    node,
    vfs,
  }) => {
    const vf = vfAt(vfs, 'pf0', 1);
    const dialects = { devicePlugin: { resourceName: 'intel.com/dpdk' } };
    const running = await startDpdk(node, 'dpdk', vf, [
      classConfig({ driver: 'vfio-pci', macAddress: '02:4e:45:54:00:42', dialects, vf: { vlan: 9 } }),
      vfConfig({ interfaceName: 'dpdk0', addresses: ['192.0.2.42/24'] }),
    ]);
    const { generation, devices } = await readMetadata(running);
    expect(generation).toBe(1);
    const [device] = devices;
    expect(device).toMatchObject({
      attributes: {
        driver: { string: 'vfio-pci' },
        vlan: { int: 9 },
        vfioDevice: { string: expect.stringMatching(/^\/dev\/vfio\/\d+$/) },
      },
      networkData: { interfaceName: 'dpdk0', hardwareAddress: '02:4e:45:54:00:42', ips: ['192.0.2.42/24'] },
    });
    const entryPoint = `dpdk-testpmd ${ealOptions} $(netdra-metadata eal-args) -- ${testpmdOptions}`;
    expect(await running.portsOf(entryPoint)).toEqual(['02:4e:45:54:00:42']);
    const { stdout } = await running.container.exec(
      ...[
        'sh',
        '-c',
        'echo "$PCIDEVICE_INTEL_COM_DPDK"; echo "$PCIDEVICE_INTEL_COM_DPDK_INFO"; stat -c %F /dev/vfio/*',
      ],
    );
    const [addresses, info = '', ...kinds] = stdout.trim().split('\n');
    expect(addresses).toBe(vf.pciAddress);
    expect(JSON.parse(info)).toEqual({
      [vf.pciAddress]: {
        generic: { deviceID: vf.pciAddress },
        vfio: { mount: '/dev/vfio/vfio', 'dev-mount': device?.attributes?.vfioDevice?.string },
      },
    });
    expect(new Set(kinds)).toEqual(new Set(['character special file']));
  });

  it('is one of two that dpdk-testpmd waits for and gets, and no other is', async ({ node, vfs }) => {
    const two = [vfAt(vfs, 'pf0', 2), vfAt(vfs, 'pf0', 3)];
    const running = await startDpdk(node, 'dpdk-two', two, [
      classConfig({ driver: 'vfio-pci' }),
      vfConfig({ interfaceName: 'dpdk%d' }),
    ]);
    const macs = (await readMetadata(running)).devices.map(({ networkData }) => networkData?.hardwareAddress);
    expect(new Set(macs).size).toBe(2);
    const wait = 'netdra-metadata wait --generation 1 --timeout 30';
    const entryPoint = `netdra-metadata exec -- dpdk-testpmd ${ealOptions} {eal-args} -- ${testpmdOptions}`;
    expect(await running.portsOf(`{ ${wait} && ${entryPoint}; }`)).toEqual(macs);
  });
});
