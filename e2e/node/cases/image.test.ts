import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deviceInfoDir } from '../../../src/dialects/index.ts';
import { decodeStream } from '../../../src/metadata/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { Bench, ipLinks, retry } from '../bench.ts';
import { type DriverPod, DriverPods } from '../driver-pods.ts';
import { containerdSeries } from '../tools.ts';

/** What the claim asks, and which addresses come of it. */
type Job = [title: string, fields: object, ips: string[]];

describe.each(containerdSeries)('the image, as the chart runs it, on containerd %s', (version) => {
  const stack = new AsyncDisposableStack();
  let bench: Bench;
  let pods: DriverPods;
  let driver: DriverPod;

  beforeAll(async () => {
    bench = stack.use(await Bench.start({ version, logger: new RecordingLogger() }));
    pods = stack.use(await DriverPods.create(bench, { simulate: '8', openClaimFields: ['ipam'] }));
    driver = await pods.start();
    try {
      await bench.kubelet.waitForDriver(testDriver, 60_000);
      await retry(() => pods.checkReady());
    } catch (cause) {
      throw new Error(`the driver does not start:\n${driver.log().slice(-4_000)}`, { cause });
    }
  });
  afterAll(async () => {
    await stack.disposeAsync();
  });

  it('has two capabilities, a seccomp profile, no way to more, and nothing to write to but its mounts', async () => {
    const pid = await bench.containerd.pidOf(driver.containerId);
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    const field = (name: string) => new RegExp(`^${name}:\\s+(\\S+)`, 'm').exec(status)?.[1];
    // CAP_NET_ADMIN is 12, CAP_SYS_ADMIN 21.
    const capabilities = ((1n << 12n) | (1n << 21n)).toString(16).padStart(16, '0');
    for (const set of ['CapEff', 'CapPrm', 'CapBnd']) expect(field(set), set).toBe(capabilities);
    expect(field('NoNewPrivs')).toBe('1');
    expect(field('Seccomp')).toBe('2');
    const lines = readFileSync(`/proc/${pid}/mountinfo`, 'utf8').trim().split('\n');
    const mounts = lines.map((line) => line.split(' '));
    const optionsOf = (path: string) =>
      mounts
        .filter((each) => each[4] === path)
        .at(-1)?.[5]
        ?.split(',') ?? [];
    expect(optionsOf('/')).toContain('ro');
    expect(optionsOf('/var/run/netns')).toContain('ro');
    expect(optionsOf('/sys')).toContain('rw');
  });

  it('publishes its VFs over the service account of the pod', async () => {
    await expect.poll(() => bench.api.objects('ResourceSlice')).toHaveLength(1);
    expect(bench.hostVfs()).toHaveLength(8);
  });

  const ownAddress: Job = ['addresses of the claim', { addresses: ['192.0.2.10/24'] }, ['192.0.2.10/24']];
  const range = { subnet: '198.18.9.0/24', rangeStart: '198.18.9.5', rangeEnd: '198.18.9.5' };
  const ofPlugin: Job = [
    'addresses of an IPAM plugin of the node',
    { ipam: { type: 'host-local', ranges: [[range]] } },
    ['198.18.9.5/24'],
  ];
  it.each([ownAddress, ofPlugin])('prepares a claim, moves the VF, and the container reads its metadata: %s', doJob);

  async function doJob(...[, fields, ips]: Job) {
    const name = `image-${randomUUID().slice(0, 8)}`;
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    const parameters = {
      apiVersion: 'netdra.dev/v1alpha1',
      kind: 'VFConfig',
      interfaceName: 'net1',
      mtu: 1400,
      ...fields,
    };
    const claim = buildClaim(name, {
      requests: [{ name: 'vf', devices: [slice?.spec.devices[0]?.name ?? ''] }],
      config: [{ source: 'FromClaim', requests: [], parameters }],
      pods: [pod],
    });
    bench.api.create(claim);
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);
    const path = `/var/run/kubernetes.io/dra-device-attributes/resourceclaims/${name}/vf/${testDriver}-metadata.json`;
    const { stdout } = await container.exec('cat', path);
    const link = ipLinks(sandbox).find(({ ifname }) => ifname === 'net1');
    expect(link).toMatchObject({ mtu: 1400 });
    const networkData = { interfaceName: 'net1', hardwareAddress: link?.address, ips };
    expect(decodeStream(stdout)).toMatchObject({ generation: 1, devices: [{ networkData }] });
    await bench.endPod(pod);
    expect(bench.claimFiles()).toEqual([]);
    expect(bench.hostVfs()).toHaveLength(8);
  }

  it('tells the host of a device where its class asks for it, through the mount that is there for it', async () => {
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    const pod = buildPod('told', { resourceClaims: [{ name: 'nic', resourceClaimName: 'told' }] });
    const dialects = { deviceInfo: { resourceName: 'example.com/nic' } };
    const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', dialects };
    const requests = [{ name: 'vf', devices: [slice?.spec.devices[0]?.name ?? ''] }];
    bench.api.create(buildClaim('told', { requests, config: [{ source: 'FromClass', parameters }], pods: [pod] }));
    await bench.prepare(pod);
    expect(readdirSync(deviceInfoDir)).toEqual([expect.stringMatching(/^example\.com-nic-.*-device\.json$/)]);
    await bench.endPod(pod);
    expect(readdirSync(deviceInfoDir)).toEqual([]);
    expect(bench.claimFiles()).toEqual([]);
  });

  it('is replaced by another instance beside it, which takes over its port; the old one ends with code 0', async () => {
    const { cri } = bench.containerd;
    const old = driver;
    driver = await pods.start();
    await retry(async () => {
      for (const message of ['registered with the kubelet', 'connected over NRI', 'waiting for it']) {
        if (!driver.log().includes(message)) throw new Error(`no "${message}":\n${driver.log()}`);
      }
    });
    await pods.checkReady();
    await cri.call('StopContainer', { containerId: old.containerId, timeout: 20 });
    expect((await cri.call('ContainerStatus', { containerId: old.containerId })).status.exitCode).toBe(0);
    await retry(() => pods.checkReady());
    expect(driver.log()).toContain('serving metrics and probes');
    await doJob(...ownAddress);
  });
});
