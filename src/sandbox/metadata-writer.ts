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
  /** Called after a claim's network data was stored and its files were written, or both were found to be right. */
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
    const { updater, driver, attributesOf, onStep } = this.#options;
    const lines: [fields: object, message: string][] = [];
    for (const [request, entries] of byRequest(served)) {
      const devices = entries.map(({ device, state }) =>
        toDeviceMetadata(driver, device, attributesOf(device.pciAddress), state),
      );
      const isNew = this.#storeNetworkData(identity, entries);
      await onStep('network-data-stored', {});
      const update = await updater?.updateRequestMetadata(identity, request, devices);
      await onStep('metadata-written', {});
      const facts = { request, devices: devices.map(({ name }) => name) };
      if (update?.isWritten) lines.push([{ ...facts, generation: update.generation }, 'metadata written']);
      // 0: it was off when the claim was prepared, so containers have no mount to read it by.
      else if (isNew && !update?.generation) lines.push([facts, 'devices ready; metadata files are off']);
    }
    // When the runtime has its answer: a pod waits for that.
    if (served.length > 0) setImmediate(() => this.#report(identity, lines));
  }

  #report(identity: ClaimIdentity, lines: readonly [fields: object, message: string][]): void {
    const { logger, onWritten } = this.#options;
    const claim = `${identity.namespace}/${identity.name}`;
    for (const [fields, message] of lines) logger.info({ claim, ...fields }, message);
    try {
      onWritten?.(identity);
    } catch (error) {
      logger.warn({ claim, err: error }, 'claim status not updated');
    }
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
    const states = await mover.read(devices, netns);
    const read = devices.map((device) => ({ request: device.request, device, state: states.get(device) }));
    return [...byRequest(read).values()].flatMap((entries) => {
      const known = entries.flatMap(({ state, ...entry }) => (state === undefined ? [] : [{ ...entry, state }]));
      return known.length === entries.length ? known : [];
    });
  }

  /** @returns whether it was not stored already */
  #storeNetworkData({ uid }: ClaimIdentity, entries: ServedDevice[]): boolean {
    const { store } = this.#options;
    const wanted = new Map(entries.map(({ device, state }) => [device.pciAddress, toNetworkData(state)]));
    const change = (device: StoredDevice) => {
      const networkData = wanted.get(device.pciAddress);
      const isKnown = networkData === undefined || isDeepStrictEqual(device.networkData, networkData);
      return isKnown ? undefined : { ...device, networkData };
    };
    // Most looks find nothing new, and need not keep other writers waiting. What is new as we know it need not be asked for.
    const isNew = entries.some(({ device }) => change(device) !== undefined);
    if (!isNew && !store.claim(uid)?.devices.some((device) => change(device) !== undefined)) return false;
    store.changeDevices(uid, change);
    return true;
  }
}
