import type { KubeletPluginHelper } from '../../framework/kubeletplugin/index.ts';
import type { SlicePublisher } from '../../framework/resourceslice/index.ts';
import { explain } from '../../lib/errors.ts';
import type { FailureEvents } from '../events/index.ts';
import type { Store } from '../state/index.ts';
import { deviceHealth } from './device-health.ts';
import type { DeviceList } from './device-list.ts';
import type { DeviceState } from './device-state.ts';
import { longestRescanMs } from './scan-schedule.ts';

export interface DeviceReportOptions {
  /** Name of the node. It is also the name of the node's pool, and unique in the cluster. */
  node: string;
  devices: Pick<
    DeviceList,
    | 'offered'
    | 'policyFault'
    | 'scannedAt'
    | 'sharedCounters'
    | 'state'
    | 'cardConditions'
    | 'failure'
    | 'isListed'
    | 'unhealthy'
  >;
  store: Pick<Store, 'claims' | 'unrestored'>;
  publisher: Pick<SlicePublisher, 'publish'>;
  kubelet: Pick<KubeletPluginHelper, 'setHealth'>;
  events: Pick<
    FailureEvents,
    'cardsUnhealthy' | 'devicesFound' | 'devicesHung' | 'devicesUnrestored' | 'policyRejected'
  >;
  observer: {
    /** Records the result of publishing slices. @param failure why no slices are written */
    published(failure?: string): void;
    reported(state: DeviceState): void;
  };
}

/**
 * Maximum number of devices in a slice. The API server allows no more in a slice with a tainted device, and any device may
 * get a taint.
 */
const maxDevicesPerSlice = 64;
/** Seconds for which a device stays healthy without a scan: three times the longest interval between scans. */
const healthySeconds = (3 * longestRescanMs) / 1_000;

/**
 * Reports the node's devices: to the scheduler in slices, to the kubelet as health, and to users as events on lost and
 * broken devices.
 */
export function reportDevices(options: DeviceReportOptions): void {
  const { node, devices, store, publisher, events, observer } = options;
  observer.reported(devices.state);
  events.policyRejected(node, devices.policyFault);
  // Publishing an empty list would withdraw all devices, and claimed devices would be reported as lost.
  if (!devices.isListed) {
    observer.published(`devices cannot be listed: ${explain(devices.failure)}`);
    return;
  }
  const offered = devices.offered();
  const names = offered.map(({ name }) => name);
  const sharedCounters = devices.sharedCounters();
  publisher.publish({ pools: { [node]: { devices: offered, sharedCounters, maxDevicesPerSlice } } });
  reportHealth(options, names);
  events.devicesFound(node, names, store.claims());
  events.devicesHung(node, devices.state.hungWrites);
  events.devicesUnrestored(node, store.unrestored());
  events.cardsUnhealthy(node, devices.cardConditions());
}

/** Reports the health of the node's devices to the kubelet. Must be called after each scan. */
export function reportHealth(
  { node, devices, store, kubelet }: DeviceReportOptions,
  names = devices.offered().map(({ name }) => name),
): void {
  const checked = { checkedAt: devices.scannedAt, timeoutSeconds: healthySeconds };
  const health = deviceHealth(node, names, store.claims(), devices.unhealthy());
  kubelet.setHealth(health.map((device) => ({ ...device, ...checked })));
}
