import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import { NetnsHandle, RtnlConnection } from '../../../src/node/netlink/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { advertise } from '../../../test/doubles/router.ts';
import { Bench, ipLinks, type RunningContainer } from '../bench.ts';
import type { Sandbox } from '../pod.ts';
import type { ContainerdSeries } from '../tools.ts';
import { addVfPod, expectClean, expectTold, pathInContainer, type VfPod } from '../vf-pod.ts';

const version: ContainerdSeries = '1.7';
/** A router of the network sends several advertisements, and each step of the driver takes longer on a busy machine. */
const patience = { timeout: 60_000, interval: 200 };

describe(`pods that take addresses from a router, on containerd ${version}`, () => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.start({ version, logger: new RecordingLogger() });
    await bench.startDriver();
  });
  afterAll(async () => await bench?.[Symbol.asyncDispose]());
  afterEach(async () => {
    await bench.endAllPods();
    await expectClean(bench);
  });

  /** Sends an advertisement by the PF, which is a bridge with all its VFs. */
  async function announce(...prefixes: string[]): Promise<void> {
    using netns = NetnsHandle.open('/proc/self/ns/net');
    using connection = RtnlConnection.open(netns);
    const pf = await connection.link({ name: 'nsim0' });
    if (pf === undefined) throw new Error('there is no nsim0');
    advertise(netns, pf, prefixes);
  }

  const hasNet1 = (sandbox: Sandbox) => ipLinks(sandbox).some(({ ifname }) => ifname === 'net1');

  async function addressesIn(container: RunningContainer, { metadata }: VfPod): Promise<string[]> {
    const { stdout } = await container.exec('cat', pathInContainer(metadata.name));
    return decodeStream(stdout).devices[0]?.networkData?.ips ?? [];
  }

  it('start with one address in metadata generation 1, and get later addresses in later generations', async () => {
    const pod = await addVfPod(bench, 'routed', 0, { slaac: { waitSeconds: 30 } });
    const sandbox = await bench.startPod(pod);
    await expect.poll(() => hasNet1(sandbox), patience).toBe(true);
    let isStarted = false;
    const starting = bench.startContainer(sandbox, pod).finally(() => (isStarted = true));
    await expect.poll(() => announce('2001:db8:1::/64').then(() => isStarted), patience).toBe(true);
    const container = await starting;
    expect(await expectTold(container, sandbox, pod)).toBe(1);
    const ips = ['192.0.2.1/24', expect.stringMatching(/^2001:db8:1:0:.*\/64$/)];
    expect(await addressesIn(container, pod)).toEqual(ips);
    const renewed = async () => {
      await announce('2001:db8:2::/64');
      return await addressesIn(container, pod);
    };
    await expect.poll(renewed, patience).toEqual([...ips, expect.stringMatching(/^2001:db8:2:0:.*\/64$/)]);
    expect(await expectTold(container, sandbox, pod)).toBeGreaterThan(1);
  });

  it('are rejected with the reason while there is no router, and start once there is a router', async () => {
    const pod = await addVfPod(bench, 'unrouted', 0, { slaac: { waitSeconds: 1 } });
    const sandbox = await bench.startPod(pod);
    // A container that is created before the wait is over waits for its end.
    const refusal = () => bench.createContainer(sandbox, pod).then(() => '', String);
    const reason =
      /claim default\/unrouted: no router gave a usable IPv6 address within slaac\.waitSeconds to \S+ \(1 s\)/;
    await expect.poll(refusal, patience).toMatch(reason);
    let container: RunningContainer | undefined;
    const start = async () => {
      await announce('2001:db8:1::/64');
      container ??= await bench.startContainer(sandbox, pod).catch(() => undefined);
      return container;
    };
    await expect.poll(start, patience).toBeDefined();
    expect(await expectTold(container!, sandbox, pod)).toBe(1);
  });
});
