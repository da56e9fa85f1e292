import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { ResourceClaim } from '../../../src/kube/index.ts';
import { decodeStream, type MetadataDocument } from '../../../src/metadata/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, generateClaim, testDriver } from '../../../test/doubles/objects.ts';
import { Bench, type IpLink, ipLinks, type RunningContainer, retry } from '../bench.ts';
import { containerdSeries } from '../tools.ts';

const config = (fields: object, requests: string[] = []) => ({
  source: 'FromClaim' as const,
  requests,
  parameters: { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...fields },
});

const v1Root = '/var/run/kubernetes.io/dra-device-attributes';
const fileName = `${testDriver}-metadata.json`;

async function cat(container: RunningContainer, path: string): Promise<string> {
  const { stdout, stderr, exitCode } = await container.exec('cat', path);
  if (exitCode !== 0) throw new Error(`cat ${path}: ${stderr}`);
  return stdout;
}

async function readV1(container: RunningContainer, claim: string, request: string): Promise<MetadataDocument> {
  return decodeStream(await cat(container, `${v1Root}/resourceclaims/${claim}/${request}/${fileName}`));
}

/** What the metadata must say of a link: global addresses, else link-local ones. */
function expectedNetworkData(link: IpLink | undefined) {
  if (link === undefined) throw new Error('no such link in the pod');
  const cidrs = (scope: string) =>
    link.addr_info
      .filter((each) => each.scope === scope)
      .map(({ local, prefixlen }) => `${local}/${prefixlen}`)
      .sort();
  const ips = cidrs('global').length > 0 ? cidrs('global') : cidrs('link');
  return { interfaceName: link.ifname, hardwareAddress: link.address, ips };
}

describe.each(containerdSeries)('the main job on containerd %s', (version) => {
  let bench: Bench;
  const logger = new RecordingLogger();

  beforeAll(async () => {
    bench = await Bench.start({ version, logger });
    await bench.startDriver();
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await bench.endAllPods();
    // (f) every case ends its pods: no file, no CDI spec, all VFs in the host's namespace again.
    expect(bench.claimFiles()).toEqual([]);
    expect(bench.hostVfs()).toHaveLength(8);
  });

  it('publishes the VFs with what tells them apart', async () => {
    await expect.poll(() => bench.api.objects('ResourceSlice')).toHaveLength(1);
    const [slice] = bench.api.objects<{ spec: { devices: { name: string; attributes: object }[] } }>('ResourceSlice');
    expect(slice?.spec.devices).toHaveLength(8);
    expect(slice?.spec.devices[0]?.attributes).toMatchObject({
      'resource.kubernetes.io/pciBusID': { string: expect.stringMatching(/^[0-9a-f]{4}:/) },
      vfIndex: { int: 0 },
      simulated: { bool: true },
    });
  });

  /** Devices of the pool, in the order in which they are published. */
  const devices = () => {
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    return (slice?.spec.devices ?? []).map(({ name }) => name);
  };

  it('(a) tells a container what `ip` says of its VF, in both layouts, generation 1', async () => {
    const [device = ''] = devices();
    const pod = buildPod('one-vf', { resourceClaims: [{ name: 'nic', resourceClaimName: 'fast-net' }] });
    const claim = buildClaim('fast-net', {
      requests: [{ name: 'vf', devices: [device] }],
      config: [
        { ...config({ macAddress: '02:11:22:33:44:55' }), source: 'FromClass' },
        config({
          interfaceName: 'net1',
          mtu: 1400,
          addresses: ['192.0.2.10/24', '2001:DB8:0::10/64'],
          routes: [{ destination: '198.51.100.0/24', gateway: '192.0.2.1' }],
        }),
      ],
      pods: [pod],
    });
    bench.api.create(claim);
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);
    const document = await readV1(container, 'fast-net', 'vf');
    expect(document).toMatchObject({
      generation: 1,
      request: 'vf',
      claim: { name: 'fast-net', uid: claim.metadata.uid },
    });
    const [told] = document.devices;
    const link = ipLinks(sandbox).find(({ ifname }) => ifname === 'net1');
    expect(told?.networkData).toEqual(expectedNetworkData(link));
    expect(told?.networkData).toEqual({
      interfaceName: 'net1',
      hardwareAddress: '02:11:22:33:44:55',
      ips: ['192.0.2.10/24', '2001:db8::10/64'],
    });
    expect(told?.attributes).toMatchObject({ mtu: { int: link?.mtu }, simulated: { bool: true } });
    expect(told).toMatchObject({ name: device, driver: testDriver });

    // The claim tells the same to those who look from outside, a moment later.
    const statuses = () => bench.api.get<ResourceClaim>('ResourceClaim', 'fast-net')?.status?.devices;
    await expect.poll(statuses, { timeout: 10_000 }).toHaveLength(1);
    expect(statuses()).toMatchObject([
      {
        ...{ driver: testDriver, device, networkData: told?.networkData },
        conditions: [{ type: 'Ready', status: 'True', reason: 'Attached' }],
      },
    ]);

    const kep = JSON.parse(await cat(container, `/var/run/dra-device-attributes/fast-net/vf/${fileName}`));
    expect(kep.requests[0].devices[0].networkData).toMatchObject({
      addresses: told?.networkData?.ips,
      hwAddress: told?.networkData?.hardwareAddress,
    });
    const write = await container.exec('sh', '-c', `echo x > ${v1Root}/resourceclaims/fast-net/vf/${fileName}`);
    expect(write.exitCode).not.toBe(0);
    expect((await container.exec('ip', 'route')).stdout).toContain('198.51.100.0/24 via 192.0.2.1 dev net1');
    await bench.endPod(pod);
    await expect.poll(() => statuses() ?? [], { timeout: 10_000 }).toEqual([]);
  });

  it('(a) serves three VFs of one claim, by three requests or by one', async () => {
    const [a = '', b = '', c = '', d = '', e = '', f = ''] = devices();
    const pod = buildPod('three-vfs', {
      resourceClaims: [
        { name: 'each', resourceClaimName: 'each' },
        { name: 'all', resourceClaimName: 'all' },
      ],
    });
    const three = [a, b, c].map((device, index) => ({ name: `vf-${index}`, devices: [device] }));
    bench.api.create(
      buildClaim('each', {
        requests: three,
        config: three.map(({ name }, index) =>
          config({ interfaceName: `net${index}`, addresses: [`192.0.2.${index + 1}/24`] }, [name]),
        ),
        pods: [pod],
      }),
    );
    bench.api.create(
      buildClaim('all', {
        requests: [{ name: 'vfs', devices: [d, e, f] }],
        config: [config({ interfaceName: 'data%d' })],
        pods: [pod],
      }),
    );
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);
    for (const index of [0, 1, 2]) {
      const document = await readV1(container, 'each', `vf-${index}`);
      const link = ipLinks(sandbox).find(({ ifname }) => ifname === `net${index}`);
      expect(document.devices.map(({ networkData }) => networkData)).toEqual([expectedNetworkData(link)]);
    }
    const names = async () =>
      (await readV1(container, 'all', 'vfs')).devices.map(({ networkData }) => networkData?.interfaceName);
    expect(await names()).toEqual(['data0', 'data1', 'data2']);
    // They have no address but the link-local one, which the kernel checks for a second or two: it follows as an update.
    await expect
      .poll(async () => (await readV1(container, 'all', 'vfs')).devices.map(({ networkData }) => networkData), {
        timeout: 10_000,
        interval: 250,
      })
      .toEqual(
        ['data0', 'data1', 'data2'].map((name) =>
          expectedNetworkData(ipLinks(sandbox).find(({ ifname }) => ifname === name)),
        ),
      );
    expect((await readV1(container, 'all', 'vfs')).generation).toBeGreaterThan(1);
    await bench.endPod(pod);
  });

  it('(a) (b) shows each container its own requests only; one without the claim sees nothing', async () => {
    const [a = '', b = ''] = devices();
    const pod = buildPod('isolated', {
      resourceClaims: [{ name: 'nics', resourceClaimName: 'two' }],
      containers: [
        { name: 'init', claims: [{ name: 'nics' }] },
        { name: 'left', claims: [{ name: 'nics', request: 'left' }] },
        { name: 'right', claims: [{ name: 'nics', request: 'right' }] },
        { name: 'none', claims: [] },
      ],
    });
    bench.api.create(
      buildClaim('two', {
        requests: [
          { name: 'left', devices: [a] },
          { name: 'right', devices: [b] },
        ],
        config: [config({ addresses: ['192.0.2.1/24'] }, ['left']), config({ addresses: ['192.0.2.2/24'] }, ['right'])],
        pods: [pod],
      }),
    );
    const sandbox = await bench.startPod(pod);
    const seen = async (name: string) => {
      const container = await bench.startContainer(sandbox, pod, name);
      const { stdout } = await container.exec('find', '/var/run/', '-name', '*-metadata.json');
      return stdout.trim().split('\n').filter(Boolean).sort();
    };
    const paths = (request: string) => [
      `/var/run/dra-device-attributes/two/${request}/${fileName}`,
      `${v1Root}/resourceclaims/two/${request}/${fileName}`,
    ];
    expect(await seen('init')).toEqual([...paths('left'), ...paths('right')].sort());
    expect(await seen('left')).toEqual(paths('left'));
    expect(await seen('right')).toEqual(paths('right'));
    expect(await seen('none')).toEqual([]);
    await bench.endPod(pod);
  });

  it('(a) has the file of a template claim under the name that the pod gave it', async () => {
    const [device = ''] = devices();
    const pod = buildPod('templated', { resourceClaims: [{ name: 'nic', resourceClaimTemplateName: 'nics' }] });
    bench.api.create(pod);
    const claim = generateClaim(pod, 'nic', {
      requests: [{ name: 'vf', devices: [device] }],
      config: [config({ addresses: ['192.0.2.1/24'] })],
    });
    bench.api.create(claim);
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);
    const document = decodeStream(await cat(container, `${v1Root}/resourceclaimtemplates/nic/vf/${fileName}`));
    expect(document).toMatchObject({ generation: 1, podClaimName: 'nic', claim: { name: claim.metadata.name } });
    for (const name of ['nic', claim.metadata.name]) {
      expect(JSON.parse(await cat(container, `/var/run/dra-device-attributes/${name}/vf/${fileName}`))).toMatchObject({
        metadata: { name: claim.metadata.name, generation: 1 },
      });
    }
    await bench.endPod(pod);
  });

  it('reports a VF that somebody else has moved, and leaves it to them', async () => {
    const [device = ''] = devices();
    const pod = buildPod('observed', { resourceClaims: [{ name: 'nic', resourceClaimName: 'observed' }] });
    const claim = buildClaim('observed', {
      requests: [{ name: 'vf', devices: [device] }],
      config: [config({ attach: 'observe' })],
      pods: [pod],
    });
    bench.api.create(claim);
    // As Multus with a CNI plugin of its own would, before our hook.
    bench.onStep = (step) => {
      if (step !== 'hook-started') return;
      const [netns = ''] = readdirSync('/run/netns');
      execFileSync('ip', ['link', 'set', 'nsim0v0', 'netns', netns, 'name', 'multus1']);
      execFileSync('ip', ['-n', netns, 'addr', 'add', '192.0.2.77/24', 'dev', 'multus1']);
      execFileSync('ip', ['-n', netns, 'link', 'set', 'multus1', 'up']);
    };
    const sandbox = await bench.startPod(pod);
    bench.onStep = () => undefined;
    const container = await bench.startContainer(sandbox, pod);
    const document = await readV1(container, 'observed', 'vf');
    const link = ipLinks(sandbox).find(({ ifname }) => ifname === 'multus1');
    expect(document).toMatchObject({ generation: 1, devices: [{ networkData: expectedNetworkData(link) }] });
    execFileSync('nsenter', [
      `--net=${sandbox.netnsPath}`,
      'ip',
      'link',
      'set',
      'multus1',
      'netns',
      '1',
      'name',
      'nsim0v0',
    ]);
    await bench.endPod(pod);
  });

  /** A class that has host-local give addresses of two families. */
  const withIpam = (name: string) => ({
    type: 'host-local',
    dataDir: join(bench.dir, name),
    ranges: [[{ subnet: '198.18.7.0/24' }], [{ subnet: 'fd00:7::/64' }]],
    routes: [{ dst: '203.0.113.0/24' }],
  });
  /** Files of host-local that are named after addresses. */
  const leases = (name: string) =>
    readdirSync(join(bench.dir, name), { recursive: true, encoding: 'utf8' }).filter((file) =>
      /\/[0-9a-f][0-9a-f:.]+$/.test(file),
    );

  it.each(['netlink', 'cni'] as const)(
    'has addresses from a CNI IPAM plugin with attach %s, and gives them back',
    async (attach) => {
      const [device = ''] = devices();
      const name = `ipam-${attach}`;
      const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
      const ipam = withIpam(name);
      // A simulated VF is no PCI device, so the plugin gets its name.
      const plugin = { cniVersion: '1.0.0', name, type: 'host-device', device: 'nsim0v0', ipam };
      const fields = attach === 'netlink' ? { ipam } : { attach, cni: plugin };
      const fromClass = { ...config({ interfaceName: 'net1', ...fields }), source: 'FromClass' as const };
      const requests = [{ name: 'vf', devices: [device] }];
      bench.api.create(buildClaim(name, { requests, config: [fromClass], pods: [pod] }));
      const sandbox = await bench.startPod(pod);
      // host-device waits for IPv6 duplicate address detection, longer than the hook may: the container is held
      // back until it is done.
      const container = await retry(() => bench.startContainer(sandbox, pod));
      const document = await readV1(container, name, 'vf');
      const link = ipLinks(sandbox).find(({ ifname }) => ifname === 'net1');
      const expected = expectedNetworkData(link);
      expect(expected.ips).toEqual([expect.stringMatching(/^198\.18\.7\./), expect.stringMatching(/^fd00:7::/)]);
      expect(document).toMatchObject({ generation: 1, devices: [{ networkData: expected }] });
      expect((await container.exec('ip', 'route')).stdout).toContain('203.0.113.0/24');
      expect(leases(name)).toHaveLength(2);
      await bench.endPod(pod);
      expect(leases(name)).toEqual([]);
    },
  );

  it('(f) can unprepare again and again', async () => {
    const [device = ''] = devices();
    const pod = buildPod('gone', { resourceClaims: [{ name: 'nic', resourceClaimName: 'gone' }] });
    const claim = buildClaim('gone', { requests: [{ name: 'vf', devices: [device] }], pods: [pod] });
    bench.api.create(claim);
    await bench.startPod(pod);
    const { namespace, name, uid } = claim.metadata;
    await bench.endPod(pod);
    for (let round = 0; round < 2; round++) {
      const answer = await bench.kubelet.client(testDriver).nodeUnprepareResources([{ namespace, name, uid }]);
      expect(answer.claims[uid]?.error).toBe('');
    }
  });

  it('(g) refuses a pod on the host network, with the reason', async () => {
    const [device = ''] = devices();
    const pod = buildPod('on-host', { resourceClaims: [{ name: 'nic', resourceClaimName: 'on-host' }] });
    bench.api.create(buildClaim('on-host', { requests: [{ name: 'vf', devices: [device] }], pods: [pod] }));
    await bench.stopDriver();
    await bench.startDriver({ hookFailure: 'reject' });
    await expect(bench.startPod(pod, { hostNetwork: true })).rejects.toThrow(
      /pod default\/on-host uses the host's network, where it cannot get a VF of its own/,
    );
    const conditions = () =>
      bench.api.get<ResourceClaim>('ResourceClaim', 'on-host')?.status?.devices?.map((each) => each.conditions?.[0]);
    const message = expect.stringContaining("uses the host's network");
    await expect
      .poll(conditions, { timeout: 10_000 })
      .toMatchObject([{ status: 'False', reason: 'NotAttached', message }]);
    await bench.endPod(pod);
    await bench.stopDriver();
    await bench.startDriver();
  });

  it('leaves pods without claims alone', async () => {
    const pod = buildPod('plain');
    const before = logger.lines.length;
    const sandbox = await bench.startPod(pod);
    await bench.startContainer(sandbox, pod);
    await bench.endPod(pod);
    expect(logger.lines.slice(before).filter(({ level }) => level !== 'debug')).toEqual([]);
  });
});
