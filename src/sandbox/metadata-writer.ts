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

/** A request whose files say what its devices are like. */
interface WrittenRequest {
  request: string;
  /** Names of its devices. */
  devices: string[];
  /** Absent: device metadata is off. */
  generation: number | undefined;
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
    const { updater, driver, attributesOf, onStep } = this.#options;
    const written: WrittenRequest[] = [];
    for (const [request, entries] of byRequest(served)) {
      const devices = entries.map(({ device, state }) =>
        toDeviceMetadata(driver, device, attributesOf(device.pciAddress), state),
      );
      this.#storeNetworkData(identity, entries);
      await onStep('network-data-stored', {});
      const generation = await updater?.updateRequestMetadata(identity, request, devices);
      await onStep('metadata-written', {});
      written.push({ request, devices: devices.map(({ name }) => name), generation });
    }
    // When the runtime has its answer: a pod waits for that.
    if (written.length > 0) setImmediate(() => this.#tell(identity, written));
  }

  #tell(identity: ClaimIdentity, written: readonly WrittenRequest[]): void {
    const { logger, onWritten } = this.#options;
    const claim = `${identity.namespace}/${identity.name}`;
    for (const { generation, ...facts } of written) {
      // 0: it was off when the claim was prepared, so containers have no mount to read it by.
      if (generation === undefined || generation === 0)
        logger.info({ claim, ...facts }, 'devices ready; metadata files are off');
      else logger.info({ claim, ...facts, generation }, 'metadata written');
    }
    try {
      onWritten?.(identity);
    } catch (error) {
      logger.warn({ claim, err: error }, 'what was written is not told');
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

  #storeNetworkData({ uid }: ClaimIdentity, entries: ServedDevice[]): void {
    const { store } = this.#options;
    const wanted = new Map(entries.map(({ device, state }) => [device.pciAddress, toNetworkData(state)]));
    const change = (device: StoredDevice) => {
      const networkData = wanted.get(device.pciAddress);
      const isKnown = networkData === undefined || isDeepStrictEqual(device.networkData, networkData);
      return isKnown ? undefined : { ...device, networkData };
    };
    // Most looks find nothing new, and need not keep other writers waiting. What is new as we know it need not be asked for.
    const isNew = entries.some(({ device }) => change(device) !== undefined);
    if (!isNew && !store.claim(uid)?.devices.some((device) => change(device) !== undefined)) return;
    store.changeDevices(uid, change);
  }
}
