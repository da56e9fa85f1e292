import type { KubeletPluginHelper } from '../../framework/kubeletplugin/index.ts';
import {
  type ClaimIdentity,
  claimName,
  type DeviceAttributes,
  type DeviceMetadata,
} from '../../framework/metadata/index.ts';
import type { Logger } from '../../lib/logger.ts';
import { asOneError, type StoredDevice } from '../model/index.ts';
import type { VfState } from '../vf/index.ts';
import type { NumaResult } from './numa-placement.ts';
import { byRequest, toDeviceMetadata } from './pod-metadata.ts';

/**
 * A device of a claim and its state in the pod; `state` is `undefined` if the device is missing there, or could not be read.
 */
export interface DeviceReading {
  request: string;
  device: StoredDevice;
  state: VfState | undefined;
  /** Comparison of the device with the CPUs of its containers; absent if no container with exclusive CPUs has the device. */
  alignment?: NumaResult | undefined;
}

/** Calls of the framework that change the metadata of a claim. */
export type MetadataCalls = Pick<
  KubeletPluginHelper,
  'updateRequestMetadata' | 'withdrawMetadata' | 'openGate' | 'holdGate' | 'endGate'
>;

export interface MetadataWriterOptions {
  files: MetadataCalls;
  attributesOf: (pciAddress: string) => DeviceAttributes;
  /**
   * Called when the metadata of a claim was written, or was already up to date.
   * @param isSettled `false` if addresses are tentative: another call follows when they are settled
   * @param isServed whether all requests are written, so that containers may start
   */
  onWritten?: (claim: ClaimIdentity, isSettled: boolean, isServed: boolean) => void;
  logger: Logger;
}

/** Converts the states of devices in a pod to the metadata of their requests. Must be called with the claim's lock held. */
export class MetadataWriter {
  readonly #options: MetadataWriterOptions;

  constructor(options: MetadataWriterOptions) {
    this.#options = options;
  }

  /**
   * Writes the metadata of each request whose devices could all be read, since a file describes a request as a whole. When
   * all requests are written, containers of the sandbox may start. If one request fails, the others are still written.
   * @param sandboxId sandbox whose containers may start; absent: the claim has failed, and its containers keep waiting
   * @throws MetadataError, StateError
   */
  async write(
    identity: ClaimIdentity,
    sandboxId: string | undefined,
    readings: readonly DeviceReading[],
  ): Promise<void> {
    const { attributesOf } = this.#options;
    const complete = [...byRequest([...readings])].flatMap(([request, entries]) =>
      entries.every(isRead) ? [{ request, entries }] : [],
    );
    const known = complete.flatMap(({ entries }) => entries);
    const contents = new Map(
      complete.map(({ request, entries }) => [
        request,
        entries.map(({ device, state, alignment }) =>
          toDeviceMetadata(device, attributesOf(device.pciAddress), state, alignment),
        ),
      ]),
    );
    // If the state of a device is missing, the containers of the claim keep waiting.
    const servedId = known.length === readings.length ? sandboxId : undefined;
    const isWritten = await this.#update(identity, contents, servedId);
    const isSettled = known.every(({ state }) => !state.tentative);
    if (readings.length > 0) {
      if (isWritten || servedId !== undefined) this.#report(identity, isSettled, servedId !== undefined);
      return;
    }
    if (servedId === undefined) return;
    // A claim without VFs has nothing to write: all of its metadata was known at prepare.
    await this.#options.files.openGate(identity, servedId);
  }

  /**
   * Writes requests one by one.
   * @param sandboxId sandbox whose containers start after the last request; absent: they keep waiting
   * @returns whether a file was written
   */
  async #update(identity: ClaimIdentity, contents: Contents, sandboxId: string | undefined): Promise<boolean> {
    const { files, logger } = this.#options;
    const claim = claimName(identity);
    const errors: unknown[] = [];
    let isAnyWritten = false;
    for (const [request, devices] of contents) {
      try {
        const update = await files.updateRequestMetadata(identity, request, devices, sandboxId);
        const { isWritten, generation } = update;
        isAnyWritten ||= isWritten;
        const names = devices.map(({ name }) => name);
        if (isWritten) logger.info({ claim, request, devices: names, generation }, 'metadata written');
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw asOneError(errors);
    return isAnyWritten;
  }

  /** Reports a write. A failure of the report must not affect the metadata. */
  #report(identity: ClaimIdentity, isSettled: boolean, isServed: boolean): void {
    const { logger, onWritten } = this.#options;
    try {
      onWritten?.(identity, isSettled, isServed);
    } catch (error) {
      logger.warn({ claim: claimName(identity), err: error }, 'cannot update claim status');
    }
  }
}

type Contents = ReadonlyMap<string, DeviceMetadata[]>;
type ReadDevice = DeviceReading & { state: VfState };

function isRead(reading: DeviceReading): reading is ReadDevice {
  return reading.state !== undefined;
}
