import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Cluster } from '../../cluster/cluster.ts';
import { ContainerView } from '../../cluster/container-view.ts';
import { driverNamespace } from '../../cluster/node/driver.ts';
import { type RequestSpec, testClaim, testClass, testPod } from '../../cluster/objects.ts';
import { readPrograms } from '../../cluster/programs.ts';
import { type VfState, withoutAddresses } from '../vfs.ts';
import { GuestCluster, slowMs } from './guest-cluster.ts';

const programs = readPrograms(process.env);
const vfCount = 14;
const slow = { timeout: slowMs, interval: 500 };

/**
 * testpmd answers ARP requests and pings to any address. It reads commands from a FIFO, so that it runs until the pod
 * ends. No huge pages: the container would need a limit for them.
 */
const testpmd = `mkfifo /tmp/commands
exec 3<>/tmp/commands
exec dpdk-testpmd -l 0,1 "$@" --no-huge -m 64 --iova-mode=va --no-telemetry -- \\
  -i --total-num-mbufs=2048 --forward-mode=icmpecho --auto-start <&3`;

const startedAt = performance.now();
const log = (line: string) => console.error(`${Math.round((performance.now() - startedAt) / 1_000)} s: ${line}`);

const ipv4 = (index: number) => `198.51.100.${index + 1}/24`;

describe(`Kubernetes ${programs.kubernetesVersion} with its kubelet in the virtual machine`, () => {
  const stack = new AsyncDisposableStack();
  let node: GuestCluster;
  let cluster: Cluster;
  let vfs: VfState[];

  beforeAll(async () => {
    node = stack.use(await GuestCluster.start(programs, log));
    cluster = stack.use(await Cluster.open(node.installDriver()));
    await offers(vfCount);
    log('all VFs are offered');
    vfs = await node.vfStates();
    expect(vfs).toHaveLength(vfCount);
  });
  afterEach(async ({ task }) => {
    if (task.result?.state === 'fail') await describeFailure();
    await cluster.removeAll();
    // With pauses: each look takes the guest's processors from those who put the VFs back.
    await expect.poll(() => node.vfStates(), { timeout: slowMs, interval: 2_000 }).toEqual(vfs);
  });
  afterAll(() => stack.disposeAsync());

  const view = (pod: string) => new ContainerView(cluster, pod);
  const offered = async () => (await cluster.devices()).length;
  const offers = (count: number) =>
    cluster.until(
      `${count} VFs are offered`,
      async () => (await offered()) === count,
      async () => ` (${await offered()})`,
    );

  async function describeFailure(): Promise<void> {
    log(node.controlPlane.kubectl('get', 'pods,events', '--all-namespaces'));
    for (const { metadata } of await cluster.list<object>('Pod')) {
      const args = ['logs', metadata.name, '--namespace', cluster.namespace, '--all-containers', '--tail=30'];
      log(`${metadata.name} has written:\n${node.controlPlane.kubectl(...args)}`);
    }
    log(node.controlPlane.kubectl('logs', 'daemonset/netdra', '--namespace', driverNamespace, '--tail=60'));
  }

  /** Creates a pod and a claim of the same name with one request, `vf`. */
  async function createPod(name: string, request: Omit<RequestSpec, 'name'>, container: object = {}): Promise<void> {
    await cluster.create(testClaim(cluster, name, [{ name: 'vf', ...request }]));
    const claims = [{ name: 'nic', resourceClaimName: name }];
    await cluster.create(testPod(cluster, name, { claims, containers: [{ name: 'main', ...container }] }));
  }

  /** The only device in the metadata file of a pod's claim. */
  async function deviceOf(name: string) {
    const [device] = (await view(name).metadata(`resourceclaims/${name}`, 'vf')).devices;
    return device;
  }

  /** The same device in the claim's status. */
  async function networkDataInStatus(name: string) {
    const claim = await cluster.find<ResourceV1ResourceClaim>('ResourceClaim', name);
    return claim?.status?.devices?.[0]?.networkData;
  }

  it('a kernel-mode pod and a DPDK pod get VFs of the cards and exchange packets', async () => {
    // Only a class may choose the VLAN and the kernel's driver.
    const createClass = async (name: string, config: object) =>
      (await cluster.create(testClass(cluster, name, { vf: { vlan: 7 }, ...config }))).metadata.name;
    await createPod('kernel', {
      deviceClassName: await createClass('kernel', {}),
      config: { interfaceName: 'net1', addresses: ['192.0.2.1/24'] },
    });
    await createPod(
      'dpdk',
      {
        deviceClassName: await createClass('dpdk', { driver: 'vfio-pci' }),
        config: { interfaceName: 'dpdk0', addresses: ['192.0.2.2/24'] },
      },
      {
        command: ['netdra-metadata', 'exec', '--', 'sh', '-euc', testpmd, 'sh', '{eal-args}'],
        capabilities: { drop: ['ALL'], add: ['IPC_LOCK'] },
        // testpmd polls its queues without a pause: without a limit it would keep one of the two emulated processors busy.
        limits: { cpu: '300m' },
      },
    );
    await cluster.waitUntilRunning('kernel');
    await cluster.waitUntilRunning('dpdk');

    const kernel = await deviceOf('kernel');
    const link = (await view('kernel').links()).find(({ ifname }) => ifname === 'net1');
    expect(kernel?.networkData).toEqual({
      interfaceName: 'net1',
      hardwareAddress: link?.address,
      ips: ['192.0.2.1/24'],
    });
    await expect.poll(() => networkDataInStatus('kernel'), slow).toEqual(kernel?.networkData);
    expect(vfs.find(({ pciAddress }) => pciAddress === pciAddressOf(kernel))).toMatchObject({ driver: 'igbvf' });

    const dpdk = await deviceOf('dpdk');
    expect(dpdk).toMatchObject({
      attributes: {
        driver: { string: 'vfio-pci' },
        vlan: { int: 7 },
        vfioDevice: { string: expect.stringMatching(/^\/dev\/vfio\/\d+$/) },
      },
      networkData: { interfaceName: 'dpdk0', ips: ['192.0.2.2/24'] },
    });
    await expect.poll(() => networkDataInStatus('dpdk'), slow).toEqual(dpdk?.networkData);

    const output = () => cluster.log('dpdk', 'main');
    await expect.poll(output, slow).toMatch(/icmpecho packet forwarding/);
    const ping = await view('kernel').read('ping', '-c', '5', '-W', '10', '192.0.2.2');
    expect(ping).toContain('5 packets transmitted, 5 packets received');
    const neighbor = await view('kernel').read('ip', 'neigh', 'show', '192.0.2.2');
    expect(neighbor).toContain(`lladdr ${dpdk?.networkData?.hardwareAddress}`);
    // Pings and the ARP request: counted by the card's driver at one end, by DPDK at the other.
    const [{ stats64 }] = JSON.parse(await view('kernel').read('ip', '-j', '-s', 'link', 'show', 'net1'));
    expect(stats64.rx.packets).toBeGreaterThanOrEqual(6);
    await view('dpdk').read('sh', '-c', "printf 'stop\\nquit\\n' >/tmp/commands");
    await cluster.waitUntilEnded('dpdk');
    const [, received, sent] = /RX-packets: (\d+)[\s\S]*?TX-packets: (\d+)/.exec(await output()) ?? [];
    expect(Number(received)).toBeGreaterThanOrEqual(6);
    expect(Number(sent)).toBeGreaterThanOrEqual(6);
  });

  it('no VF is lost when kubelet and driver are killed during pod creation, and a bond survives a pulled cable', async () => {
    const { driver } = cluster.target;
    const requests = ['left', 'right'];
    const shared = { requests, config: { bond: { name: 'bond0' }, addresses: [ipv4(0)] }, distinct: 'pfPciAddress' };
    await cluster.create(testClaim(cluster, 'bonded', [{ name: 'left' }, { name: 'right' }], [shared]));
    await cluster.create(testPod(cluster, 'bonded', { claims: [{ name: 'nic', resourceClaimName: 'bonded' }] }));
    await createPod('single', { config: { interfaceName: 'net1', addresses: [ipv4(1)] } });
    // One has its VFs or is about to get them, the other one not yet.
    const sandboxes = async () => Number(await node.guest.run('ls /var/run/netns | wc -l'));
    await expect.poll(sandboxes, { timeout: 60_000, interval: 100 }).toBeGreaterThanOrEqual(1);
    await node.killKubelet();
    await node.killDriver();
    await node.startKubelet();
    await cluster.waitUntilRunning('single');
    const device = await deviceOf('single');
    const link = (await view('single').links()).find(({ ifname }) => ifname === 'net1');
    expect(device?.networkData).toMatchObject({ hardwareAddress: link?.address, ips: [ipv4(1)] });
    await cluster.waitUntilRunning('bonded');
    const members = async () => {
      const documents = await Promise.all(
        requests.map((request) => view('bonded').metadata('resourceclaims/bonded', request)),
      );
      return documents.flatMap(({ generation, devices }) => devices.map((device) => ({ generation, ...device })));
    };
    const pfsOf = (all: Awaited<ReturnType<typeof members>>) => all.map(({ attributes }) => attributes?.pfName?.string);
    const active = async () => pfsOf((await members()).filter(({ attributes }) => attributes?.bondActive?.bool));
    await expect.poll(active, slow).toHaveLength(1);
    const before = await members();
    expect(pfsOf(before).sort()).toEqual(['pf0', 'pf1']);
    const bond = (await view('bonded').links()).find(({ ifname }) => ifname === 'bond0');
    const networkData = { interfaceName: 'bond0', hardwareAddress: bond?.address, ips: [ipv4(0)] };
    expect(before.map((device) => device.networkData)).toEqual([networkData, networkData]);

    const [pulled = 'pf0', kept] =
      (await active())[0] === 'pf0' ? (['pf0', 'pf1'] as const) : (['pf1', 'pf0'] as const);
    /** PF and taints of each device that has any. */
    const tainted = async () =>
      (await cluster.devices()).flatMap(({ attributes, taints = [] }) =>
        taints.length > 0
          ? [[attributes?.pfName?.string, ...taints.map(({ key, effect }) => `${key}:${effect}`)].join(' ')]
          : [],
      );
    log(`the bond runs; the cable of ${pulled} is pulled`);
    await node.setCable(pulled, false);
    try {
      await expect.poll(active, slow).toEqual([kept]);
      for (const [index, { generation }] of (await members()).entries())
        expect(generation).toBeGreaterThan(before[index]!.generation);
      // The cable's script sets the PF down and up: until the driver has looked again, the VFs have the taint pf-down, too.
      const expected = Array(vfCount / 2).fill(`${pulled} ${driver}/no-carrier:NoSchedule`);
      await expect.poll(tainted, slow).toEqual(expected);
    } finally {
      await node.setCable(pulled, true);
    }
    await expect.poll(tainted, slow).toEqual([]);
  });

  it('VFs of a reset card are offered again after they are recreated, and carry packets', async () => {
    // Even without netdra, VFs of an igb card have no link after a reset of their PF until they are recreated.
    await node.resetPf('pf1');
    const half = vfCount / 2;
    await node.switchVfs('pf1', 0);
    await offers(half);
    await node.switchVfs('pf1', half);
    await offers(vfCount);
    // The kernel generates addresses for new VFs.
    const anew = await node.vfStates();
    expect(anew.map(withoutAddresses)).toEqual(vfs.map(withoutAddresses));
    vfs = anew;
    const pfs = ['pf0', 'pf1'];
    for (const [index, pf] of pfs.entries()) {
      const selector = `device.attributes["${cluster.target.driver}"].pfName == "${pf}"`;
      await createPod(pf, { selectors: [selector], config: { interfaceName: 'net1', addresses: [ipv4(index)] } });
    }
    for (const pf of pfs) await cluster.waitUntilRunning(pf);
    const ping = await view('pf0').read('ping', '-c', '3', '-W', '10', ipv4(1).replace('/24', ''));
    expect(ping).toContain('3 packets transmitted, 3 packets received');
  });
});

function pciAddressOf(device: { attributes?: Record<string, { string?: string }> } | undefined): string | undefined {
  return device?.attributes?.['resource.kubernetes.io/pciBusID']?.string;
}
