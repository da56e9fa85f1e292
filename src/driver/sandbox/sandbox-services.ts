import type { ClaimMetadata } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Store } from '../state/index.ts';
import type { Attachments } from '../vf/index.ts';
import type { Networks } from '../vf/networks.ts';
import { ClaimWork, type ClaimWorkOptions } from './claim-work.ts';
import { containerAdjustment } from './container-adjustment.ts';
import { DeletedPods, type DeletedPodsOptions } from './deleted-pods.ts';
import { MetadataWriter, type MetadataWriterOptions } from './metadata-writer.ts';
import { NamespaceEnds } from './namespace-ends.ts';
import { NriHooks } from './nri-hooks.ts';
import type { NumaChecks } from './numa-guard.ts';
import type { SandboxDeps, SandboxReports } from './sandbox-deps.ts';
import { SandboxRegistry } from './sandbox-registry.ts';
import { StartGuard, type StartGuardOptions } from './start-guard.ts';
import { WaitingSandboxes } from './waiting-sandboxes.ts';

export interface SandboxServicesOptions extends MetadataWriterOptions, SandboxReports {
  store: Store;
  metadata: ClaimMetadata;
  attachments: Attachments;
  networks: Networks;
  locks: Locks;
  numa: NumaChecks;
  /** Whether the driver follows changes in running pods: see {@link SandboxDeps}. */
  liveUpdates: boolean;
  clock: Clock;
  /** See {@link ClaimWorkOptions}. */
  reconfigure: ClaimWorkOptions['reconfigure'];
  onRead?: NonNullable<ClaimWorkOptions['onRead']>;
  /** See {@link StartGuardOptions}. */
  runsHooks: StartGuardOptions['runsHooks'];
  onOtherPod: StartGuardOptions['onOtherPod'];
  /** See {@link DeletedPodsOptions}. */
  isWanted: DeletedPodsOptions['isWanted'];
  /** Called after the runtime has listed its sandboxes. */
  onSynchronized: () => void;
}

/** Parts between the runtime's events and the kernel: hooks → registry → sandbox → attachments → metadata. */
export interface SandboxServices {
  hooks: NriHooks;
  registry: SandboxRegistry;
  deletedPods: DeletedPods;
  waitingSandboxes: WaitingSandboxes;
}

export function createSandboxServices(options: SandboxServicesOptions): SandboxServices {
  const { onSynchronized, isWanted, numa, clock, logger } = options;
  const writer = new MetadataWriter(options);
  const claims = new ClaimWork({ ...options, writer });
  const registry = new SandboxRegistry({ ...options, claims, ends: new NamespaceEnds(options) });
  const guard = new StartGuard(options);
  const deletedPods = new DeletedPods({ registry, isWanted, clock, logger });
  const waitingSandboxes = new WaitingSandboxes({ ...options, registry });
  const hooks = new NriHooks({
    registry,
    guard,
    numa,
    onSynchronized,
    clock,
    logger,
    adjustmentOf: (pod, container) => containerAdjustment(options, pod, container),
  });
  return { registry, deletedPods, waitingSandboxes, hooks };
}
