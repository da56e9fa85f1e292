import { execFileSync } from 'node:child_process';
import { expect, onTestFinished } from 'vitest';
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

/** Prints the ports of testpmd. Its memory has huge pages, as an application's has. */
const hugeScript = `export PATH=/netdra:/usr/sbin:/usr/bin:/bin XDG_RUNTIME_DIR=/tmp
netdra-metadata wait --generation 1 --timeout 30
stat -c 'file %u %g %a' /dev/vfio/*
printf 'show port info all\\nquit\\n' |
  dpdk-testpmd -l 0,1 -m 64 --no-telemetry $(netdra-metadata eal-args) -- -i --total-num-mbufs=2048`;

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

it('dpdk-testpmd runs as the user to whom its class gives the device files, and not as another one', async ({
  node,
  vfs,
}) => {
  const deviceFiles = { uid: 1000, gid: 2000, mode: '0660' };
  const config = [classConfig({ driver: 'vfio-pci', macAddress: '02:4e:45:54:00:43', deviceFiles })];
  const pod = node.createPod('user', vfAt(vfs, 'pf1', 1), config);
  const { bench } = node;
  const { cri } = bench.containerd;
  const sandbox = await bench.startPod(pod);
  // A volume for huge pages, which the kubelet opens to every user.
  const hugePages = node.createFolder('hugepages');
  execFileSync('mount', ['-t', 'hugetlbfs', '-o', 'mode=0777', 'hugetlbfs', hugePages]);
  onTestFinished(() => void execFileSync('umount', [hugePages]));
  const mounts = [...dpdkMounts, { hostPath: hugePages, containerPath: '/dev/hugepages', readonly: false }];
  const runAs = async (name: string, user: number) => {
    const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, 'main');
    const id = await runContainer(cri, sandbox, { name, cdiDevices, mounts, user });
    return { pod, sandbox, container: { id, exec: (...command: string[]) => exec(cri, id, command, 200) } };
  };
  const owner = await runAs('owner', 1000);
  const { stdout, stderr, exitCode } = await owner.container.exec('sh', '-ec', hugeScript);
  expect(exitCode, `${stdout}\n${stderr}`).toBe(0);
  expect(stdout.match(/^file .*$/gm)).toEqual(['file 1000 2000 660', 'file 1000 2000 660']);
  const [device] = (await readMetadata(owner)).devices;
  expect(device?.networkData?.hardwareAddress).toBe('02:4e:45:54:00:43');
  expect(/^MAC address: (\S+)$/m.exec(stdout)?.[1]?.toLowerCase()).toBe(device?.networkData?.hardwareAddress);

  const other = await (await runAs('other', 1001)).container.exec('sh', '-ec', hugeScript);
  expect(other.stderr).toMatch(/VFIO container \/dev\/vfio\/vfio, .*Permission denied/);
  expect(other.stdout).not.toContain('MAC address');
});
