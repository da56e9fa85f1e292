import {
  type ClaimStatusError,
  ClaimStatusWriter,
  type DeviceStatus,
} from '../../../../src/framework/claimstatus/index.ts';
import type { AllocatedDeviceStatus, ResourceClaim } from '../../../../src/framework/kube/index.ts';
import type { ClaimIdentity } from '../../../../src/framework/metadata/index.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { poll, startKubeBench } from '../../../doubles/kube-bench.ts';
import { buildClaim, buildPod, testDriver, testNode } from '../../../doubles/objects.ts';

export async function startBench() {
  const kube = await startKubeBench();
  const { api, resources, logger, clock } = kube;
  /** Persistent failures: the claim's name, and the error. */
  const failures: [string, ClaimStatusError][] = [];
  /** Codes of all failures. */
  const errors: string[] = [];
  const start = (driver = testDriver, pool?: string) =>
    kube.stack.use(
      new ClaimStatusWriter(resources, {
        driver,
        clock,
        logger,
        ...(pool === undefined ? {} : { pool }),
        onPersistentFailure: ({ name }, error) => failures.push([name, error]),
        onError: ({ code }) => errors.push(code),
      }),
    );
  return {
    ...kube,
    failures,
    errors,
    start,
    warnings: () => logger.lines.filter(({ level }) => level === 'warn').map(({ fields }) => fields.err),
    /** A claim with devices `vf-0`, `vf-1` … of our driver, and one of another. */
    createClaim(name = 'fast-net', count = 2): ClaimIdentity {
      const devices = Array.from({ length: count }, (_, n) => `vf-${n}`);
      const foreign = { device: 'gpu-0', driver: 'gpu.example.com', pool: testNode };
      const requests = [
        { name: 'vf', devices },
        { name: 'gpu', devices: [foreign] },
      ];
      const { namespace, uid } = api.create(buildClaim(name, { requests, pods: [buildPod('p')] })).metadata;
      return { namespace: namespace ?? '', name, uid };
    },
    entries(name = 'fast-net'): AllocatedDeviceStatus[] | undefined {
      return api.get<ResourceClaim>('ResourceClaim', name)?.status?.devices;
    },
    patches: () => api.requests('PATCH /status'),
    /** Waits until writers sleep before that many removals, and lets them begin. */
    async startRemovals(count = 1): Promise<void> {
      await poll(() => clock.sleeping().filter((ms) => ms === 5_000)).toHaveLength(count);
      clock.advance(5_000);
    },
  };
}

export const it = itWith(startBench).extend<{ claim: ClaimIdentity; writer: ClaimStatusWriter }>({
  claim: async ({ own: bench }, use) => use(bench.createClaim()),
  writer: async ({ own: bench }, use) => use(bench.start()),
});

export function ready(device: string, more: Partial<DeviceStatus> = {}): DeviceStatus {
  const networkData = { interfaceName: 'net1', ips: ['192.0.2.10/24'], hardwareAddress: '02:00:00:00:00:01' };
  return { pool: testNode, device, ready: true, reason: 'Attached', networkData, ...more };
}
