import type { DraPlugin } from '../../framework/kubeletplugin/index.ts';
import { CdiSpecs, type ClaimMetadata } from '../../framework/metadata/index.ts';
import type { SlicePublisher } from '../../framework/resourceslice/index.ts';
import { shared } from '../../lib/shared.ts';
import { parseCidr } from '../../node/netlink/index.ts';
import { AddressAllocator } from '../addresses/index.ts';
import {
  checkAllocation,
  createKubeNamespaceReader,
  createKubeNetworkAttachmentReader,
  DeviceClasses,
  Driver,
} from '../claims/index.ts';
import type { DeviceList } from '../devices/device-list.ts';
import { DialectFiles } from '../dialects/index.ts';
import type { FailureEvents } from '../events/index.ts';
import type { Attachments } from '../vf/index.ts';
import type { NodeContext } from './node-context.ts';
import { cdiClasses, type KubeletConnection } from './ports.ts';

/**
 * How long one reading of the node's networks is reused, ms: many pods may start at once. A change within this time could
 * just as well come after the claim was prepared.
 */
const nodeNetworksKeptMs = 1_000;

/** Creates the driver that handles the kubelet's calls. */
export function createClaims(
  { kube, resources, kernel, disk, settings, stack, ...base }: NodeContext,
  {
    devices,
    metadata,
    attachments,
    events,
  }: { devices: DeviceList; metadata: ClaimMetadata; attachments: Attachments; events: FailureEvents },
) {
  const { clock, logger, random } = base;
  const { driverName: driver, nodeName, cdiDir: dir } = settings;
  const { store, locks } = disk;
  const control = base.decorate('control', devices.vfs.control);
  const deviceSpecs = new CdiSpecs({ dir, driver, class: cdiClasses.devices });
  const dialectFiles = new DialectFiles({
    specs: new CdiSpecs({ dir, driver, class: cdiClasses.dialects }),
    deviceInfoDir: settings.deviceInfoDir,
  });
  const classes = stack.use(new DeviceClasses({ resources, clock, logger, random }));
  const addressPools = new AddressAllocator({ kube, resources, node: nodeName, random });
  const networkDriver = new Driver({
    driver,
    store,
    locks,
    attachments,
    control,
    deviceSpecs,
    dialectFiles,
    clock,
    logger,
    inventory: { pool: nodeName, find: (name) => devices.findUsable(name) },
    withdrawMetadata: (claim) => metadata.withdraw(claim),
    isShownByContainers: (claim) => metadata.isShownByContainers(claim),
    attributesOf: (pciAddress) => devices.attributesOf(pciAddress),
    networkAttachments: createKubeNetworkAttachmentReader(kube),
    namespaces: createKubeNamespaceReader(kube),
    addressPools,
    pods: resources,
    cni: settings.cni,
    judgeOthers: (of) => devices.judgeOthers(of),
    checkAllocation: (claim, signal) => checkAllocation(driver, classes, claim, signal),
    openClaimFields: settings.openClaimFields,
    onSlow: (claim, progress) => events.slowToPrepare(claim, progress),
    onShared: (claim, what) => events.portShared(claim, what),
    nodeNetworks: shared(
      async () => {
        const addresses = await kernel.networks.host.connection.reachableAddresses();
        return addresses.filter(({ scope }) => scope === 'global').map(({ cidr }) => parseCidr(cidr));
      },
      { ms: nodeNetworksKeptMs, clock },
    ),
  });
  return { driver: networkDriver, control, addressPools };
}

/** Starts to serve calls of the kubelet. */
export async function serveKubelet(
  { kubelet, disk: { locks }, observer, resources, settings, stack }: NodeContext,
  plugin: DraPlugin,
  metadata: ClaimMetadata,
  publisher: SlicePublisher,
): Promise<KubeletConnection> {
  const { driverName: driver, dataDir } = settings;
  return stack.use(
    await kubelet.serve(plugin, {
      driver,
      dataDir,
      claims: resources,
      metadata,
      locks,
      onMetadataError: (error) => observer.metadataFailed(error),
      // The kubelet deletes the driver's slices while the driver is unavailable, so they are checked at each registration.
      onRegistration: (registration) => {
        observer.connected('kubelet', registration.registered ? undefined : `refused: ${registration.error}`);
        if (registration.registered) publisher.recheck();
      },
      onSocketLost: (problem) => observer.connected('kubelet', problem),
    }),
  );
}
