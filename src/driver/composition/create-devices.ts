import { join } from 'node:path';
import { type ClaimIdentity, ClaimMetadata, claimName, layouts } from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import type { DeviceList } from '../devices/device-list.ts';
import { heldBy } from '../devices/held-devices.ts';
import { openDevices } from '../devices/open-devices.ts';
import { OtherDrivers } from '../devices/other-drivers.ts';
import { SriovOperator } from '../devices/sriov-operator.ts';
import { endEarlierBoots } from '../recovery/index.ts';
import { claimMarker } from '../sandbox/index.ts';
import { StoredRecords } from '../state/index.ts';
import { createPolicySource } from './create-policy-source.ts';
import type { NodeContext } from './node-context.ts';

/**
 * Creates the device list and the metadata of claims. First ends the claims of earlier boots and withdraws their metadata.
 * @param onPending called for a claim whose containers wait for metadata again
 */
export async function createDevices(
  context: NodeContext,
  onPending: (claim: ClaimIdentity) => void,
): Promise<{ metadata: ClaimMetadata; devices: DeviceList }> {
  const { disk, clock, now, logger, settings, stack } = context;
  const { networks, ...sources } = context.kernel;
  const { driverName: driver, nodeName, dataDir, stateDir, listAttributes } = settings;
  const { attributesDir, downwardApiDir } = settings;
  const { store, bootId, gate, later } = disk;
  const metadata = new ClaimMetadata({
    driver,
    dataDir,
    cdiDir: settings.cdiDir,
    bootId,
    now,
    marker: claimMarker,
    layouts: settings.metadataLayouts.map((name) => layouts[name]),
    versions: settings.metadataVersions,
    // The object is created even if metadata is off: claims that already have metadata keep it.
    enabled: settings.enableDeviceMetadata,
    attributesOf: ({ pool, name }) => {
      const device = pool === nodeName ? devices.find(name) : undefined;
      return device && devices.attributesOf(device.pciAddress);
    },
    onRecovered: (claim, err) => {
      const log = { claim: claimName(claim), claimUid: claim.uid, err };
      logger.warn(log, 'recovered the damaged record of a claim, which is written anew');
    },
    records: new StoredRecords({ store, dataDir }),
    onPending,
    ...defined({ later, gate: gate.hook, attributesDir, downwardApiDir }),
  });
  // Must run before anything reads the VF snapshots of an earlier boot.
  await endEarlierBoots({ store, withdraw: (claim) => metadata.withdraw(claim), logger });
  const { connection: host, ethtool } = networks.host;
  const otherDrivers = await followOtherDrivers(context);
  const operator = await followOperator(context);
  const devices = stack.use(
    await openDevices(settings, {
      driver,
      host,
      stateDir,
      store,
      clock,
      now,
      logger,
      listAttributes,
      otherDrivers,
      ...sources,
      held: heldBy(store),
      unrestored: () => store.unrestored(),
      settingsLost: () => context.drift.lost(),
      operatorWork: () => operator?.work,
      ...defined({ ethtool, policy: sources.policy ?? createPolicySource(context) }),
    }),
  );
  return { metadata, devices };
}

async function followOtherDrivers(context: NodeContext): Promise<OtherDrivers> {
  const { clock, logger, random, resources, disk, settings, stack } = context;
  const { driverName: driver, nodeName: node, stateDir } = settings;
  const { files } = disk;
  const statePath = join(stateDir, 'other-drivers.json');
  const options = { resources, driver, node, files, statePath, clock, logger, random };
  const others = stack.use(new OtherDrivers(options));
  await others.start();
  return others;
}

async function followOperator({
  clock,
  logger,
  random,
  kube,
  settings,
  stack,
}: NodeContext): Promise<SriovOperator | undefined> {
  const { nodeName: node, sriovOperator: namespace } = settings;
  if (namespace === undefined) return undefined;
  const operator = stack.use(new SriovOperator({ kube, node, namespace, clock, logger, random }));
  await operator.start();
  return operator;
}
