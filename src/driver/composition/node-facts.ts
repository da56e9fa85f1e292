import type { ClaimMetadata } from '../../framework/metadata/index.ts';
import { shared } from '../../lib/shared.ts';
import type { DeviceList } from '../devices/device-list.ts';
import { metadataOf, type SandboxRegistry } from '../sandbox/index.ts';
import { TrafficReader, type TrafficReaderOptions } from '../vf/index.ts';
import type { NodeContext } from './node-context.ts';
import type { NodeFacts } from './ports.ts';

export interface FactSources {
  devices: DeviceList;
  metadata: ClaimMetadata;
  sandboxes: SandboxRegistry;
}

/**
 * How long one reading of the PFs' counters is reused for metrics, ms: cards answer slowly, and the kernel blocks meanwhile.
 */
const trafficKeptMs = 1_000;

/** Returns functions that read the figures of a node on demand. */
export function nodeFacts(context: NodeContext, { devices, metadata, sandboxes }: FactSources): NodeFacts {
  const { clock, disk, kernel, logger, settings } = context;
  const { store } = disk;
  const interfaceNameOf: TrafficReaderOptions['interfaceNameOf'] = (claim, device) =>
    metadataOf(metadata, claim, device)?.networkData?.interfaceName;
  const traffic = new TrafficReader({ store, networks: kernel.networks, vfs: devices.vfs, interfaceNameOf, logger });
  const held = () => store.claims().flatMap((claim) => claim.devices);
  return {
    devicesOffered: () => devices.offered().length,
    deviceCounts: () => devices.counts(),
    deviceProblems: () => devices.problemCount,
    isPolicyValid: () => devices.policyFault === undefined,
    claimsByState: () => {
      const byState = Map.groupBy(store.claims(), ({ state }) => state);
      return Object.fromEntries([...byState].map(([state, claims]) => [state, claims.length]));
    },
    devicesUsed: () => new Set(held().map(({ name }) => name)).size,
    devicesAttached: () => held().filter(({ attachment }) => attachment !== undefined).length,
    waitsMs: () => sandboxes.waitsMs(),
    metadataFiles: () => metadata.countFiles(),
    ...(settings.vfTraffic ? { vfTraffic: shared(() => traffic.read(), { ms: trafficKeptMs, clock }) } : {}),
  };
}
