import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import type { Bench } from '../../node/bench.ts';
import { exec, runContainer } from '../../node/pod.ts';
import {
  detailedLinks,
  hostVfStates,
  offeredDevices,
  readMetadata,
  startVmBench,
  type VfState,
  vfConfig,
} from '../vm-node.ts';

const fromClass = (fields: object) => ({ ...vfConfig(fields), source: 'FromClass' as const });

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

describe('VFs that are changed from outside', () => {
  let bench: Bench;
  let before: VfState[];
  beforeAll(async () => {
    // vfio pins what a container maps; it inherits the limit from the runtime.
    execFileSync('prlimit', [`--pid=${process.pid}`, '--memlock=unlimited:unlimited']);
    bench = await startVmBench(new RecordingLogger());
    await bench.startDriver();
    await vi.waitFor(() => expect(offeredDevices(bench)).not.toEqual([]), { timeout: 60_000 });
    before = hostVfStates();
    expect(before).toHaveLength(14);
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await bench.endAllPods();
    expect(hostVfStates()).toEqual(before);
    expect(bench.claimFiles()).toEqual([]);
  });

  it('sets MAC, VLAN and trust through the PF, and gives all of it back', async () => {
    const [device] = offeredDevices(bench);
    const pod = buildPod('vlan', { resourceClaims: [{ name: 'nic', resourceClaimName: 'vlan' }] });
    const config = [
      fromClass({ macAddress: '02:4e:45:54:00:07', vf: { vlan: 7, trust: true } }),
      vfConfig({ interfaceName: 'net1', mtu: 1400, addresses: ['192.0.2.7/24'] }),
    ];
    const requests = [{ name: 'vf', devices: [device?.name ?? ''] }];
    bench.api.create(buildClaim('vlan', { requests, config, pods: [pod] }));
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);
    const [told] = (await readMetadata(container, 'vlan', 'vf')).devices;
    expect(told).toMatchObject({
      attributes: { vlan: { int: 7 }, mtu: { int: 1400 }, mac: { string: '02:4e:45:54:00:07' } },
      networkData: { interfaceName: 'net1', hardwareAddress: '02:4e:45:54:00:07', ips: ['192.0.2.7/24'] },
    });
    const link = detailedLinks(sandbox.netnsPath).find(({ ifname }) => ifname === 'net1');
    expect(link).toMatchObject({ address: '02:4e:45:54:00:07', mtu: 1400 });
    const pf = detailedLinks().find(({ ifname }) => ifname === 'pf0');
    expect(pf?.vfinfo_list?.find(({ vf }) => vf === 0)).toMatchObject({
      address: '02:4e:45:54:00:07',
      vlan_list: [{ vlan: 7 }],
    });
  });

  it('runs dpdk-testpmd on a VF from the metadata file alone', async () => {
    const [, device] = offeredDevices(bench);
    const pod = buildPod('dpdk', { resourceClaims: [{ name: 'nic', resourceClaimName: 'dpdk' }] });
    const config = [
      fromClass({ driver: 'vfio-pci', macAddress: '02:4e:45:54:00:42' }),
      vfConfig({ interfaceName: 'dpdk0', addresses: ['192.0.2.42/24'] }),
    ];
    const requests = [{ name: 'vf', devices: [device?.name ?? ''] }];
    bench.api.create(buildClaim('dpdk', { requests, config, pods: [pod] }));
    const sandbox = await bench.startPod(pod);
    const { cri } = bench.containerd;
    const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, 'main');
    const id = await runContainer(cri, sandbox, { name: 'main', cdiDevices, mounts: dpdkMounts });
    const container = { id, exec: (...command: string[]) => exec(cri, id, command, 200) };
    const [told] = (await readMetadata(container, 'dpdk', 'vf')).devices;
    expect(told).toMatchObject({
      attributes: {
        driver: { string: 'vfio-pci' },
        vfioDevice: { string: expect.stringMatching(/^\/dev\/vfio\/\d+$/) },
      },
      networkData: { interfaceName: 'dpdk0', hardwareAddress: '02:4e:45:54:00:42', ips: ['192.0.2.42/24'] },
    });
    const { stdout, stderr } = await container.exec('sh', '-c', dpdkEntryPoint);
    const [, address] = /MAC address: ([0-9A-F:]{17})/.exec(stdout) ?? [];
    expect(address?.toLowerCase(), `${stdout}\n${stderr}`).toBe(told?.networkData?.hardwareAddress);
  });

  it('sees VFs that go and come within five seconds', async () => {
    const numVfs = '/sys/class/net/pf1/device/sriov_numvfs';
    const onSecondCard = () =>
      offeredDevices(bench).filter(({ attributes }) => JSON.stringify(attributes.pfName) === '{"string":"pf1"}').length;
    writeFileSync(numVfs, '0');
    await expect.poll(onSecondCard, { timeout: 5_000 }).toBe(0);
    writeFileSync(numVfs, '4');
    await expect.poll(onSecondCard, { timeout: 5_000 }).toBe(4);
    before = hostVfStates();
  });
});
