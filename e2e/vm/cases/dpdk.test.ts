import { expect } from 'vitest';
import { buildClaim, buildPod } from '../../../test/doubles/objects.ts';
import { exec, runContainer } from '../../node/pod.ts';
import { classConfig, vfConfig } from '../vf-config.ts';
import { vfAt } from '../vfs.ts';
import { deviceName, readMetadata } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** Mounts of the guest's DPDK, as if it were in the image, and netdra-metadata: libraries and programs, read-only. */
const dpdkMounts = [
  ['/usr', '/usr'],
  ['/usr/lib', '/lib'],
  ['/usr/lib64', '/lib64'],
  [process.env.NETDRA_TOOLS, '/netdra'],
].map(([hostPath = '', containerPath = '']) => ({ hostPath, containerPath, readonly: true }));

/**
 * Prints the ports of testpmd, and variables. Without huge pages every page is a separate mapping, of which vfio allows
 * 65,535: 64 MiB are enough and far below that.
 */
const script = `export PATH=/netdra:/usr/sbin:/usr/bin:/bin
netdra-metadata wait --generation 1 --timeout 30
printf 'show port info all\\nquit\\n' |
  dpdk-testpmd -l 0,1 --no-huge -m 64 --iova-mode=va --no-telemetry $(netdra-metadata eal-args) -- -i --total-num-mbufs=2048
echo "addresses $PCIDEVICE_INTEL_COM_DPDK"
echo "info $PCIDEVICE_INTEL_COM_DPDK_INFO"
stat -c 'file %F' /dev/vfio/*`;

it("dpdk-testpmd waits for its two VFs and gets them, one of them also in the device plugin's variables", async ({
  node: { bench },
  vfs,
}) => {
  const [vf, plain] = [vfAt(vfs, 'pf0', 1), vfAt(vfs, 'pf0', 2)];
  const pod = buildPod('dpdk', { resourceClaims: [{ name: 'nic', resourceClaimName: 'dpdk' }] });
  const dialects = { devicePlugin: { resourceName: 'intel.com/dpdk' } };
  const fixed = { driver: 'vfio-pci', macAddress: '02:4e:45:54:00:42', dialects, vf: { vlan: 9 } };
  const claim = buildClaim('dpdk', {
    requests: [
      { name: 'fixed', devices: [deviceName(vf)] },
      { name: 'plain', devices: [deviceName(plain)] },
    ],
    config: [
      { ...classConfig(fixed), requests: ['fixed'] },
      { ...classConfig({ driver: 'vfio-pci' }), requests: ['plain'] },
      { ...vfConfig({ interfaceName: 'dpdk0', addresses: ['192.0.2.42/24'] }), requests: ['fixed'] },
    ],
    pods: [pod],
  });
  bench.api.create(claim);
  const sandbox = await bench.startPod(pod);
  const { cri } = bench.containerd;
  const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, 'main');
  const id = await runContainer(cri, sandbox, { name: 'main', cdiDevices, mounts: dpdkMounts });
  const container = { id, exec: (...command: string[]) => exec(cri, id, command, 200) };
  const read = (request: string) => readMetadata({ pod, sandbox, container }, 'dpdk', request);

  const { generation, devices } = await read('fixed');
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
  const [other] = (await read('plain')).devices;
  const { stdout, stderr, exitCode } = await container.exec('sh', '-ec', script);
  const all = (pattern: RegExp) => [...stdout.matchAll(pattern)].map(([, found = '']) => found);
  expect(exitCode, `${stdout}\n${stderr}`).toBe(0);
  expect(all(/^MAC address: ([0-9A-F:]{17})/gm).map((mac) => mac.toLowerCase())).toEqual([
    '02:4e:45:54:00:42',
    other?.networkData?.hardwareAddress,
  ]);
  expect(all(/^addresses (.*)$/gm)).toEqual([vf.pciAddress]);
  expect(JSON.parse(all(/^info (.*)$/gm)[0] ?? '')).toEqual({
    [vf.pciAddress]: {
      generic: { deviceID: vf.pciAddress },
      vfio: { mount: '/dev/vfio/vfio', 'dev-mount': device?.attributes?.vfioDevice?.string },
    },
  });
  expect(new Set(all(/^file (.*)$/gm))).toEqual(new Set(['character special file']));
});
