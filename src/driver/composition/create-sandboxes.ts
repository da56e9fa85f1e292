import { isPodWanted } from '../../framework/kube/index.ts';
import type { ClaimMetadata } from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import type { Driver } from '../claims/index.ts';
import type { DeviceList } from '../devices/device-list.ts';
import { podDriftOf } from '../drift/index.ts';
import { createSandboxServices, type SandboxServices } from '../sandbox/index.ts';
import type { Attachments } from '../vf/index.ts';
import type { NodeReports } from './create-reports.ts';
import type { NodeContext } from './node-context.ts';
import type { KubeletConnection } from './ports.ts';

/** Parts that are needed to serve sandboxes. */
export interface SandboxParts {
  devices: DeviceList;
  metadata: ClaimMetadata;
  attachments: Attachments;
  events: NodeReports['events'];
  status: NodeReports['status'];
  numa: NodeReports['numa'];
  drifted: NodeReports['drifted'];
  driver: Driver;
  kubelet: KubeletConnection;
}

/** Creates the parts that handle events of the container runtime. @param nudge requests a round of the reconciler */
export function createSandboxes(
  { kube, kernel, disk, settings, stack, podUidsOf, ...base }: NodeContext,
  parts: SandboxParts,
  nudge: () => void,
): SandboxServices {
  const { store, locks, gate } = disk;
  const { devices, metadata, attachments, events, status, numa, driver, kubelet, drifted } = parts;
  const { clock, logger, observer } = base;
  const side = createSandboxServices({
    store,
    locks,
    attachments,
    networks: kernel.networks,
    metadata,
    clock,
    logger,
    files: observer.files(kubelet),
    numa,
    attributesOf: (pciAddress) => devices.attributesOf(pciAddress),
    reconfigure: (claim, device) => driver.reconfigure(claim, device),
    onRead: (claim, device, state) => drifted.podCompared(claim, device, podDriftOf(device, state)),
    isWanted: (pod, signal) => isPodWanted(kube, pod, signal),
    runsHooks: gate.runsHooks,
    liveUpdates: settings.liveUpdates,
    onWritten: (claim, isSettled, isServed) => {
      if (isServed) status.served(claim);
      status.report(claim, isSettled);
    },
    onWaited: (...wait) => observer.waited(...wait),
    onFailure: (claim, reason, error, lost) => {
      observer.attachFailed(error);
      status.report(claim, true, { reason, ...defined({ lost }) });
      events.notAttached(claim, podUidsOf(claim), reason);
    },
    onFlapping: (claim) => events.flapping(claim, podUidsOf(claim)),
    onSlow: (pod, claim, progress) => events.slowToAttach(pod, claim, progress),
    onSynchronized: nudge,
    onOtherPod: nudge,
  });
  for (const part of [side.registry, side.deletedPods, side.waitingSandboxes]) stack.use(part);
  return side;
}
