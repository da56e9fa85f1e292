import { CdiSpecs, type ClaimMetadata } from '../../framework/metadata/index.ts';
import type { AddressAllocator } from '../addresses/index.ts';
import type { DeviceList } from '../devices/device-list.ts';
import { heldBy } from '../devices/held-devices.ts';
import { type DriftReport, PfDriftSweep } from '../drift/index.ts';
import { InactiveClaims } from '../recovery/inactive-claims.ts';
import type { CniCleanUp } from '../recovery/index.ts';
import { LostLeases } from '../recovery/lost-leases.ts';
import { recreateLost } from '../recovery/lost-vfs.ts';
import { ObservedVfs } from '../recovery/observed-vfs.ts';
import { OrphanedFiles } from '../recovery/orphaned-files.ts';
import { Reconciler } from '../recovery/reconciler.ts';
import type { RecordedFiles } from '../recovery/recorded-files.ts';
import { restoreVfs } from '../recovery/unrestored-vfs.ts';
import type { NumaGuard, SandboxRegistry } from '../sandbox/index.ts';
import type { Attachments, VfControl } from '../vf/index.ts';
import type { NodeContext } from './node-context.ts';
import { cdiClasses, type KubeletConnection } from './ports.ts';

export interface ReconcilerParts {
  devices: DeviceList;
  metadata: ClaimMetadata;
  attachments: Attachments;
  control: VfControl;
  addressPools: AddressAllocator;
  drifted: DriftReport;
  kubelet: KubeletConnection;
  numa: NumaGuard;
  files: RecordedFiles;
  cniCleanUp: CniCleanUp;
  registry: SandboxRegistry;
  /** Requests a round of the reconciler. */
  nudge: () => void;
}

/** Creates the reconciler with the tasks of each round, in their order. */
export function createReconciler(context: NodeContext, parts: ReconcilerParts): Reconciler {
  const { disk, resources, settings, decorate, clock, logger, drift, stack } = context;
  const { driverName: driver, nodeName: pool, reconcileIntervalMs: everyMs, cdiDir: dir } = settings;
  const { store, locks } = disk;
  const { devices, metadata, attachments, control, drifted, kubelet: helper, registry, nudge } = parts;
  const sandboxes = decorate('sandboxes', registry);
  const inactive = new InactiveClaims({
    driver,
    pool,
    store,
    metadata,
    sandboxes,
    claims: resources,
    helper,
    everyMs,
    clock,
    logger,
    requestRound: nudge,
    requestCheck: () => reconciler.nudgeLater(),
  });
  const specs = Object.values(cdiClasses).map((name) => new CdiSpecs({ dir, driver, class: name }));
  const orphans = new OrphanedFiles({ store, metadata, specs, locks, logger });
  const observed = new ObservedVfs({ store, sandboxes: registry, attachments, locks, clock, logger });
  const leases = new LostLeases({ driver, store, claims: resources, addressPools: parts.addressPools, helper, logger });
  const vfs = { store, attachments, control, locks, logger };
  const settingsOfVfs = new PfDriftSweep({
    store,
    control,
    locks,
    clock,
    logger,
    onRestored: (claim, device, drifts) => drifted.restored(claim, device, drifts),
    onCompared: (claim, device, found) => drifted.pfCompared(claim, device, found),
  });
  const keepSettings = async (signal: AbortSignal) => {
    drift.retain(store.claims());
    await settingsOfVfs.sweep(signal);
  };
  const tasks = [
    { name: 'recorded files', run: () => parts.files.restore() },
    { name: 'CPUs of containers', run: async () => parts.numa.observeDeferred() },
    // VF settings come before sandboxes, so that pods' metadata is read again with restored settings. A slow sweep may still
    // end later.
    { name: 'settings of VFs', run: keepSettings },
    { name: 'sandboxes', run: async () => registry.requeueAll() },
    { name: 'VFs to restore', run: (signal: AbortSignal) => restoreVfs(vfs, signal) },
    { name: 'VFs', run: (signal: AbortSignal) => recreateLost(devices, heldBy(store), signal) },
    { name: 'observed VFs', run: (signal: AbortSignal) => observed.sweep(signal) },
    { name: 'claims', run: (signal: AbortSignal) => inactive.sweep(signal) },
    { name: 'leases of addresses', run: (signal: AbortSignal) => leases.sweep(signal) },
    { name: 'files', run: (signal: AbortSignal) => orphans.sweep(signal) },
    { name: 'CNI attachments', run: (signal: AbortSignal) => parts.cniCleanUp.sweep(signal) },
  ];
  const decorated = tasks.map((task) => decorate('task', task));
  const reconciler = stack.use(new Reconciler({ tasks: decorated, everyMs, clock, logger }));
  return reconciler;
}
