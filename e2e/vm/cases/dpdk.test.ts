import { describe, expect } from 'vitest';
import { testDriver } from '../../../test/doubles/objects.ts';
import { exec, runContainer } from '../../node/pod.ts';
import { classConfig, vfConfig } from '../vf-config.ts';
import { vfAt } from '../vfs.ts';
import { readMetadata } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** DPDK of the guest, as if it were in the image: libraries and programs, read-only. */
const dpdkMounts = [
  ['/usr', '/usr'],
  ['/usr/lib', '/lib'],
  ['/usr/lib64', '/lib64'],
].map(([hostPath = '', containerPath = '']) => ({ hostPath, containerPath, readonly: true }));

/**
 * An entry point that knows nothing but its metadata file. Without huge pages every page is a mapping of its own, of which
 * vfio allows 65,535: 64 MiB are enough and far below that.
 */
const dpdkEntryPoint = `
export PATH=/usr/sbin:/usr/bin:/bin
file=/var/run/dra-device-attributes/dpdk/vf/${testDriver}-metadata.json
pci=$(grep -A1 '"resource.kubernetes.io/pciBusID"' $file | grep '"string"' | cut -d '"' -f 4)
printf 'show port info 0\\nquit\\n' |
  dpdk-testpmd -l 0,1 -a $pci --no-huge -m 64 --iova-mode=va --no-telemetry -- -i --total-num-mbufs=2048
`;

describe('a VF for DPDK', () => {
  it('runs dpdk-testpmd in a container from the metadata file alone', async ({ node, vfs }) => {
    const pod = node.createPod('dpdk', vfAt(vfs, 'pf0', 1), [
      classConfig({ driver: 'vfio-pci', macAddress: '02:4e:45:54:00:42' }),
      vfConfig({ interfaceName: 'dpdk0', addresses: ['192.0.2.42/24'], vf: { vlan: 9 } }),
    ]);
    const { bench } = node;
    const sandbox = await bench.startPod(pod);
    const { cri } = bench.containerd;
    const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, 'main');
    const id = await runContainer(cri, sandbox, { name: 'main', cdiDevices, mounts: dpdkMounts });
    const container = { id, exec: (...command: string[]) => exec(cri, id, command, 200) };
    const { generation, devices } = await readMetadata({ pod, sandbox, container });
    expect(generation).toBe(1);
    const [told] = devices;
    expect(told).toMatchObject({
      attributes: {
        driver: { string: 'vfio-pci' },
        vlan: { int: 9 },
        vfioDevice: { string: expect.stringMatching(/^\/dev\/vfio\/\d+$/) },
      },
      networkData: { interfaceName: 'dpdk0', hardwareAddress: '02:4e:45:54:00:42', ips: ['192.0.2.42/24'] },
    });
    const { stdout, stderr } = await container.exec('sh', '-c', dpdkEntryPoint);
    const [, address] = /MAC address: ([0-9A-F:]{17})/.exec(stdout) ?? [];
    expect(address?.toLowerCase(), `${stdout}\n${stderr}`).toBe(told?.networkData?.hardwareAddress);
  });
});
