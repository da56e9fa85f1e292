import { isDeepStrictEqual } from 'node:util';
import type { PodSandbox } from '../../nri/index.ts';
import type { Store, StoredDevice } from '../driver/index.ts';
import type { MetadataUpdater } from '../kubeletplugin/index.ts';
import type { Logger } from '../logger.ts';
import type { ClaimIdentity, DeviceAttributes } from '../metadata/index.ts';
import { isServed, type VfState } from './place.ts';
import { byRequest, toDeviceMetadata, toNetworkData } from './pod-metadata.ts';
import { openPodNetns } from './pod-netns.ts';
import type { OnStep } from './steps.ts';
import type { VfMover } from './vf-mover.ts';

/** A device and what it is like in its pod. */
export interface ServedDevice {
  request: string;
  device: StoredDevice;
  state: VfState;
}

export interface MetadataWriterOptions {
  driver: string;
  store: Store;
  mover: VfMover;
  /** Absent: device metadata is off. */
  updater?: MetadataUpdater;
  attributesOf: (pciAddress: string) => DeviceAttributes;
  /** Told after a claim's network data was stored and its files were written. */
  onWritten?: (claim: ClaimIdentity) => void;
  logger: Logger;
  onStep: OnStep;
}

/** Turns what devices are like in a pod into the metadata of their requests. To be called with the claim's mutex held. */
export class MetadataWriter {
  readonly #options: MetadataWriterOptions;

  constructor(options: MetadataWriterOptions) {
    this.#options = options;
  }

  /** Stores the network data and writes the files, request by request. */
  async write(identity: ClaimIdentity, served: ServedDevice[]): Promise<void> {
    const { updater, driver, attributesOf, onStep, logger } = this.#options;
    for (const [request, entries] of byRequest(served)) {
      const devices = entries.map(({ device, state }) =>
        toDeviceMetadata(driver, device, attributesOf(device.pciAddress), state),
      );
      this.#storeNetworkData(identity, entries);
      await onStep('network-data-stored', {});
      const generation = await updater?.updateRequestMetadata(identity, request, devices);
      await onStep('metadata-written', {});
      const claim = `${identity.namespace}/${identity.name}`;
      const facts = { claim, request, devices: devices.map(({ name }) => name) };
      // 0: it was off when the claim was prepared, so containers have no mount to read it by.
      if (generation === undefined || generation === 0) logger.info(facts, 'devices ready; metadata files are off');
      else logger.info({ ...facts, generation }, 'metadata written');
    }
    if (served.length > 0) this.#options.onWritten?.(identity);
  }

  /**
   * Reads the claim's devices again, as far as they are in the pod. Only requests of which every device can
   * be read: the metadata of a request is written as a whole.
   */
  async readAgain(pod: PodSandbox, identity: ClaimIdentity): Promise<ServedDevice[]> {
    const { store, mover } = this.#options;
    const devices = (store.claim(identity.uid)?.devices ?? []).filter((device) => isServed(device, pod));
    if (devices.length === 0) return [];
    using netns = openPodNetns(pod);
    const read = await Promise.all(
      devices.map(async (device) => ({ request: device.request, device, state: await mover.read(device, netns) })),
    );
    return [...byRequest(read).values()].flatMap((entries) => {
      const known = entries.flatMap(({ state, ...entry }) => (state === undefined ? [] : [{ ...entry, state }]));
      return known.length === entries.length ? known : [];
    });
  }

  #storeNetworkData({ uid }: ClaimIdentity, entries: ServedDevice[]): void {
    const { store } = this.#options;
    const stored = store.claim(uid)?.devices ?? [];
    for (const { device, state } of entries) {
      const { pciAddress } = device;
      const networkData = toNetworkData(state);
      const isKnown = (known?: StoredDevice) =>
        known === undefined || isDeepStrictEqual(known.networkData, networkData);
      if (isKnown(stored.find((known) => known.pciAddress === pciAddress))) continue;
      store.changeDevice(uid, pciAddress, (current) => ({ ...current, networkData }));
    }
  }
}
