import type { StoredClaim, StoredDevice } from '../model/index.ts';
import type { Attachments } from '../vf/index.ts';
import { ClaimWork, type ClaimWorkOptions } from './claim-work.ts';
import { type ContainerAdjustmentOptions, containerAdjustment } from './container-adjustment.ts';
import { DeletedPods, type DeletedPodsOptions } from './deleted-pods.ts';
import { MetadataWriter, type MetadataWriterOptions } from './metadata-writer.ts';
import { NamespaceEnds } from './namespace-ends.ts';
import { NriHooks } from './nri-hooks.ts';
import type { NumaGuard } from './numa-guard.ts';
import type { SandboxDeps } from './sandbox-deps.ts';
import { SandboxRegistry } from './sandbox-registry.ts';
import { StartGuard, type StartGuardOptions } from './start-guard.ts';
import { WaitingSandboxes, type WaitingSandboxesOptions } from './waiting-sandboxes.ts';

export interface SandboxSideOptions
  extends MetadataWriterOptions,
    Omit<ClaimWorkOptions, 'attachments' | 'networks' | 'writer'>,
    Omit<SandboxDeps, 'claims' | 'ends' | 'store'>,
    Omit<StartGuardOptions, 'store' | 'metadata'>,
    Pick<DeletedPodsOptions, 'isWanted'> {
  metadata: ClaimWorkOptions['metadata'] &
    WaitingSandboxesOptions['metadata'] &
    StartGuardOptions['metadata'] &
    ContainerAdjustmentOptions['metadata'];
  store: ClaimWorkOptions['store'] & SandboxDeps['store'] & StartGuardOptions['store'];
  attachments: Attachments;
  numa: Pick<NumaGuard, 'alignmentOf' | 'check' | 'observe'>;
  assure: (claim: StoredClaim, device: StoredDevice) => Promise<void>;
  /** Called after the runtime has listed its sandboxes. */
  onSynchronized: () => void;
}

/** Everything between the runtime's events and the kernel: hooks → registry → sandbox → attachments → metadata. */
export interface SandboxSide {
  hooks: NriHooks;
  registry: SandboxRegistry;
  deletedPods: DeletedPods;
  waitingSandboxes: WaitingSandboxes;
}

export function createSandboxSide(options: SandboxSideOptions): SandboxSide {
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
