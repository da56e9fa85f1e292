import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { ResourceClaim } from '../../../src/framework/kube/index.ts';
import { decodeStream, type MetadataDocument } from '../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { parseScrape } from '../../../test/doubles/prometheus.ts';
import { expectedNetworkData } from '../../ip-link.ts';
import { Bench, ipLinks, type RunningContainer, retry } from '../bench.ts';
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

/** Cases that, unlike those of e2e/cluster, need no cluster or are not possible in one. */
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
    // (f) every case ends its pods: no files or CDI specs remain, and all VFs are back in the host's namespace.
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

  /** Devices of the pool, in published order. */
  const devices = () => {
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    return (slice?.spec.devices ?? []).map(({ name }) => name);
  };

  it('reports a VF that somebody else has moved, and leaves it to them', async () => {
    const [device = ''] = devices();
    const pod = buildPod('observed', { resourceClaims: [{ name: 'nic', resourceClaimName: 'observed' }] });
    const claim = buildClaim('observed', {
      requests: [{ name: 'vf', devices: [device] }],
      config: [config({ attach: 'observe' })],
      pods: [pod],
    });
    bench.api.create(claim);
    const sandbox = await bench.startPod(pod);
    // Like Multus with a CNI plugin of its own, only late.
    const netns = basename(sandbox.netnsPath);
    execFileSync('ip', ['link', 'set', 'nsim0v0', 'netns', netns, 'name', 'multus1']);
    execFileSync('ip', ['-n', netns, 'addr', 'add', '192.0.2.77/24', 'dev', 'multus1']);
    execFileSync('ip', ['-n', netns, 'link', 'set', 'multus1', 'up']);
    const container = await retry(() => bench.startContainer(sandbox, pod));
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

  /** A class in which host-local assigns addresses of two families. */
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
      // A simulated VF is not a PCI device, so the plugin gets its interface name.
      const plugin = { cniVersion: '1.0.0', name, type: 'host-device', device: 'nsim0v0', ipam };
      const fields = attach === 'netlink' ? { ipam } : { attach, cni: plugin };
      const fromClass = { ...config({ interfaceName: 'net1', ...fields }), source: 'FromClass' as const };
      const requests = [{ name: 'vf', devices: [device] }];
      bench.api.create(buildClaim(name, { requests, config: [fromClass], pods: [pod] }));
      const sandbox = await bench.startPod(pod);
      // host-device waits for IPv6 duplicate address detection, longer than the hook may take: so the container waits.
      const container = await bench.startContainer(sandbox, pod);
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
    const sandbox = await bench.startPod(pod, { hostNetwork: true });
    await expect(bench.createContainer(sandbox, pod)).rejects.toThrow(
      /pod default\/on-host uses the host's network, where it cannot have a VF of its own/,
    );
    const conditions = () =>
      bench.api.get<ResourceClaim>('ResourceClaim', 'on-host')?.status?.devices?.map((each) => each.conditions?.[0]);
    const message = expect.stringContaining("uses the host's network");
    await expect
      .poll(conditions, { timeout: 10_000 })
      .toMatchObject([{ status: 'False', reason: 'NotAttached', message }]);
    await bench.endPod(pod);
  });

  it('tells Prometheus and probes what there is, and what it took', async () => {
    await bench.stopDriver();
    await bench.startDriver({ httpAddress: '127.0.0.1:0' });
    const { port } = logger.lines.findLast(({ message }) => message === 'serving metrics and probes')?.fields ?? {};
    const url = `http://127.0.0.1:${port}`;
    const scrape = async () => parseScrape(await (await fetch(`${url}/metrics`)).text());
    await expect.poll(async () => (await fetch(`${url}/readyz`)).status).toBe(200);
    const [first = ''] = devices();
    const pod = buildPod('scraped', { resourceClaims: [{ name: 'nic', resourceClaimName: 'scraped' }] });
    bench.api.create(buildClaim('scraped', { requests: [{ name: 'vf', devices: [first] }], pods: [pod] }));
    await bench.prepare(pod);
    const gauges = ['netdra_claims{state="prepared"}', 'netdra_devices_attached', 'dra_metadata_files_active'];
    const read = (values: Map<string, number>) => gauges.map((gauge) => values.get(gauge));
    expect(read(await scrape())).toEqual([1, 0, 0]);
    await bench.runSandbox(pod);
    // On a busy machine the hook answers before all of its work is done.
    await expect.poll(async () => read(await scrape())).toEqual([1, 1, 1]);
    const running = await scrape();
    expect(running.get('netdra_devices_offered')).toBe(8);
    expect(running.get('dra_metadata_writes_total')).toBe(1);
    for (const [histogram, labels] of [
      ['netdra_claim_duration_seconds', 'operation="prepare",result="ok"'],
      ['netdra_hook_duration_seconds', 'hook="runPodSandbox",result="ok"'],
    ]) {
      expect(running.get(`${histogram}_count{${labels}}`), histogram).toBe(1);
      expect(running.get(`${histogram}_sum{${labels}}`), histogram).toBeGreaterThan(0);
    }
    await bench.endPod(pod);
    expect(read(await scrape())).toEqual([0, 0, 0]);
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
