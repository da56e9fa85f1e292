import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { expect } from 'vitest';
import { buildClaim, buildPod } from '../../../test/doubles/objects.ts';
import { exec, runContainer } from '../../node/pod.ts';
import { classConfig, vfConfig } from '../vf-config.ts';
import { detailedLinks, vfAt } from '../vfs.ts';
import { deviceName, readMetadata, type VmNode } from '../vm-node.ts';
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

it('dpdk-testpmd starts with both VFs of its claims, even if device plugin variables name one of them', async ({
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

/** A volume for huge pages, which the kubelet opens to every user, as a mount of a container. */
function mountHugePages(node: VmNode, name: string) {
  const hostPath = node.createFolder(name);
  execFileSync('mount', ['-t', 'hugetlbfs', '-o', 'mode=0777', 'hugetlbfs', hostPath]);
  return {
    mount: { hostPath, containerPath: '/dev/hugepages', readonly: false },
    [Symbol.dispose]: () => void execFileSync('umount', ['--lazy', hostPath]),
  };
}

it('dpdk-testpmd runs as the owner of the device files, but not as another user or with little lockable memory', async ({
  node,
  vfs,
}) => {
  const deviceFiles = { uid: 1000, gid: 2000, mode: '0660' };
  const config = [classConfig({ driver: 'vfio-pci', macAddress: '02:4e:45:54:00:43', deviceFiles })];
  const pod = node.createPod('user', vfAt(vfs, 'pf1', 1), config);
  const { bench } = node;
  const { cri } = bench.containerd;
  const sandbox = await bench.startPod(pod);
  using hugePages = mountHugePages(node, 'pages-of-user');
  const mounts = [...dpdkMounts, hugePages.mount];
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

  // Huge pages count, too.
  const limited = await owner.container.exec('sh', '-ec', `ulimit -l 8192\n${hugeScript}`);
  expect(limited.stderr).toMatch(/Cannot set up DMA remapping, .*Cannot allocate memory/);
  expect(limited.stdout).not.toContain('MAC address');

  const other = await (await runAs('other', 1001)).container.exec('sh', '-ec', hugeScript);
  expect(other.stderr).toMatch(/VFIO container \/dev\/vfio\/vfio, .*Permission denied/);
  expect(other.stdout).not.toContain('MAC address');
});

/** Starts testpmd, which goes on until it reads `quit` from the FIFO. It must not keep the output of this shell open. */
const startScript = `export PATH=/netdra:/usr/sbin:/usr/bin:/bin XDG_RUNTIME_DIR=/tmp
netdra-metadata wait --generation 1 --timeout 30
args=$(netdra-metadata eal-args --file-prefix)
mkfifo /tmp/commands
dpdk-testpmd -l 0,1 -m 32 --no-telemetry $args -- -i --total-num-mbufs=2048 <>/tmp/commands >/tmp/log 2>&1 &
until grep 'Checking link' /tmp/log; do kill -0 $! || { cat /tmp/log; exit 1; }; sleep 1; done`;

const endScript = `printf 'show port info all\\nquit\\n' >/tmp/commands
until grep -q Bye /tmp/log; do sleep 1; done
cat /tmp/log`;

it('two containers of a pod run dpdk-testpmd at once, with huge pages of one volume', async ({ node, vfs }) => {
  const { bench } = node;
  const { cri } = bench.containerd;
  const names = ['left', 'right'];
  const used = names.map((_name, index) => vfAt(vfs, `pf${index}`, 2));
  const addresses = ['02:4e:45:54:00:44', '02:4e:45:54:00:45'];
  const pod = buildPod('pair', {
    resourceClaims: names.map((name) => ({ name, resourceClaimName: name })),
    containers: names.map((name) => ({ name, claims: [{ name }] })),
  });
  for (const [index, name] of names.entries()) {
    const config = [classConfig({ driver: 'vfio-pci', macAddress: addresses[index] })];
    bench.api.create(
      buildClaim(name, { requests: [{ name: 'vf', devices: [deviceName(used[index]!)] }], config, pods: [pod] }),
    );
  }
  const sandbox = await bench.startPod(pod);
  using hugePages = mountHugePages(node, 'pages-of-pair');
  const ids: string[] = [];
  const run = async (id: string, script: string) => {
    const { stdout, stderr, exitCode } = await exec(cri, id, ['sh', '-ec', script], 300);
    expect(exitCode, `${stdout}\n${stderr}`).toBe(0);
    return stdout;
  };
  for (const name of names) {
    const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, name);
    const id = await runContainer(cri, sandbox, { name, cdiDevices, mounts: [...dpdkMounts, hugePages.mount] });
    await run(id, startScript);
    ids.push(id);
  }
  const files = await run(ids[0]!, 'ls /dev/hugepages');
  expect([...new Set(files.match(/^\S+(?=map_)/gm))].sort()).toEqual(used.map(({ pciAddress }) => pciAddress).sort());
  for (const [index, id] of ids.entries()) {
    const output = await run(id, endScript);
    expect(/^MAC address: (\S+)$/m.exec(output)?.[1]?.toLowerCase(), output).toBe(addresses[index]);
  }
});

it('the driver does not offer a VF that a program of the host has open through vfio', async ({ node, vfs }) => {
  const vf = vfAt(vfs, 'pf1', 5);
  const device = `/sys/bus/pci/devices/${vf.pciAddress}`;
  const shell = (script: string) => execFileSync('bash', ['-euc', script], { encoding: 'utf8' });
  const bind = (driver: string) =>
    shell(`echo ${driver} > ${device}/driver_override; echo ${vf.pciAddress} > ${device}/driver/unbind
      echo ${vf.pciAddress} > /sys/bus/pci/drivers_probe; echo > ${device}/driver_override`);
  const offered = () => node.offeredDevices().some(({ name }) => name === deviceName(vf));
  const enabled = () => readFileSync(`${device}/enable`, 'utf8').trim();
  const seen = { timeout: 200_000, interval: 1_000 };
  bind('vfio-pci');
  try {
    expect(enabled()).toBe('0');
    await expect
      .poll(() => node.offeredDevices().find(({ name }) => name === deviceName(vf))?.attributes?.driver, seen)
      .toEqual({ string: 'vfio-pci' });
    const options = '-l 0,1 -m 64 --no-huge --iova-mode=va --no-telemetry';
    const program = spawn('bash', [
      '-c',
      `exec dpdk-testpmd ${options} -a ${vf.pciAddress} -- -i --total-num-mbufs=2048`,
    ]);
    const ended = once(program, 'exit');
    try {
      await expect.poll(enabled, seen).not.toBe('0');
      await expect.poll(offered, seen).toBe(false);
    } finally {
      program.stdin.end('quit\n');
      await ended;
    }
    await expect.poll(enabled, seen).toBe('0');
    await expect.poll(offered, seen).toBe(true);
  } finally {
    // Sets the VF's MAC at the PF before igbvf binds the VF: igbvf would choose a new one.
    shell(`ip link set ${vf.pf} vf ${vf.index} mac ${vf.address}`);
    bind('igbvf');
    shell(
      `ip link set ${detailedLinks().find(({ parentdev }) => parentdev === vf.pciAddress)?.ifname} name ${vf.name}`,
    );
  }
});
