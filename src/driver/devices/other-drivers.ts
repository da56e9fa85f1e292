import { FollowedList, type FollowedListOptions, firstAnswers, type ResourceApi } from '../../framework/kube/index.ts';
import type { DeviceAttributes } from '../../framework/metadata/index.ts';
import { type ResourceSlice, type SliceApi, SliceError } from '../../framework/resourceslice/index.ts';
import { errnoCode } from '../../lib/errors.ts';
import type { TextFiles } from '../../lib/text-files.ts';
import type { GivenOut } from '../../node/inventory/index.ts';
import { isPciAddress } from '../../node/sriov/index.ts';

/**
 * How long a function counts as another driver's after its slice was deleted, ms. The kubelet deletes all slices of its node
 * when it starts, and later those of a driver that is unavailable for half a minute; in both cases claims keep their devices.
 * Source: Kubernetes, pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go.
 */
const keptMs = 300_000;

/**
 * Names, without their domain, of attributes that contain the PCI address of a device: the standard
 * `resource.kubernetes.io/pciBusID`, and attributes of network drivers, such as `dra.net/pciAddress`.
 */
const addressAttributes: ReadonlySet<string> = new Set(['pciBusID', 'pciAddress']);

export interface OtherDriversOptions extends Pick<FollowedListOptions<ResourceSlice>, 'clock' | 'logger' | 'random'> {
  resources: ResourceApi;
  /** Name of this driver. */
  driver: string;
  node: string;
  files: TextFiles;
  /** Path of the file that keeps the PCI functions for the next start: after a reboot, claims still exist but slices do not. */
  statePath: string;
}

/**
 * Follows the ResourceSlices of other DRA drivers on the node to learn which PCI functions they offer. Neither the scheduler
 * nor the kubelet detects that two drivers offer the same function. Decision:
 * docs/decisions/0077-devices-of-other-drivers-are-not-offered.md
 */
export class OtherDrivers implements AsyncDisposable {
  readonly #slices: FollowedList<ResourceSlice>;
  readonly #options: OtherDriversOptions;
  /** Functions that are in a slice or were in one less than {@link keptMs} ago, by PCI address. */
  readonly #seen = new Map<string, { driver: string; lastMs: number }>();
  /** Content of the file; `{}` if there is none. */
  #kept = '{}';
  /** Whether the last write of the file succeeded. */
  #isKept = true;

  constructor(options: OtherDriversOptions) {
    const { resources, driver, node } = options;
    this.#options = options;
    const path = 'resourceslices';
    const query = { fieldSelector: `spec.nodeName=${node},spec.driver!=${driver}` };
    const source = {
      list: (signal: AbortSignal) => resources.list<ResourceSlice>({ path, query, signal }),
      watch: (resourceVersion: string, signal: AbortSignal) =>
        resources.watch<ResourceSlice>({ path, query: { ...query, resourceVersion }, signal }),
    };
    this.#slices = new FollowedList({ ...options, source, what: 'ResourceSlices of other drivers on this node' });
  }

  /** Begins to follow the slices. Returns when the API server has answered, after two seconds at the latest. */
  async start(): Promise<void> {
    this.#slices.start();
    await this.#readKept();
    await firstAnswers(this.#options.clock, [this.#slices]);
  }

  /** Returns the drivers that offer functions, by PCI address; `undefined` until the slices were listed. */
  offered(): GivenOut | undefined {
    const { objects, failure } = this.#slices;
    const nowMs = this.#options.clock.nowMs();
    // While the API server is unavailable, other drivers cannot publish either, so no function expires.
    if (objects === undefined || failure !== undefined) for (const each of this.#seen.values()) each.lastMs = nowMs;
    if (objects === undefined) return undefined;
    for (const { spec } of objects.values()) {
      for (const { attributes = {} } of spec.devices ?? []) {
        for (const address of addressesIn(attributes)) this.#seen.set(address, { driver: spec.driver, lastMs: nowMs });
      }
    }
    for (const [address, { lastMs }] of this.#seen) if (nowMs - lastMs > keptMs) this.#seen.delete(address);
    this.#keep();
    return new Map([...this.#seen].map(([address, { driver }]) => [address, driver]));
  }

  [Symbol.asyncDispose]() {
    return this.#slices[Symbol.asyncDispose]();
  }

  async #readKept(): Promise<void> {
    const { files, statePath, clock, logger } = this.#options;
    try {
      const text = await files.read(statePath);
      const lastMs = clock.nowMs();
      for (const [address, driver] of Object.entries(JSON.parse(text))) {
        if (isPciAddress(address)) this.#seen.set(address, { driver: String(driver), lastMs });
      }
      this.#kept = text;
    } catch (err) {
      if (errnoCode(err) === 'ENOENT') return;
      logger.warn({ err, path: statePath }, 'cannot read which devices other drivers offered before the start');
    }
  }

  /** Writes the PCI functions that other drivers offer to the file. A failure is only logged. */
  #keep(): void {
    const { files, statePath, logger } = this.#options;
    const functions = [...this.#seen].map(([address, { driver }]) => [address, driver] as const);
    const text = JSON.stringify(Object.fromEntries(functions.sort()));
    if (text === this.#kept) return;
    try {
      files.replace(statePath, text);
      this.#kept = text;
      this.#isKept = true;
    } catch (err) {
      // The next call tries again, and only the first failure is logged.
      if (this.#isKept)
        logger.warn({ err, path: statePath }, 'cannot store, for the next start, which devices other drivers offer');
      this.#isKept = false;
    }
  }
}

function addressesIn(attributes: DeviceAttributes): string[] {
  return Object.entries(attributes).flatMap(([name, value]) => {
    if (!addressAttributes.has(name.slice(name.indexOf('/') + 1)) || !('string' in value)) return [];
    const address = value.string.toLowerCase();
    return isPciAddress(address) ? [address] : [];
  });
}

/**
 * Keeps a publisher from writing slices before a scan has left out the devices of other drivers.
 * @returns the API with another `list`, which throws SliceError `slice-others-unknown` until then: each attempt to publish
 * begins with `list`
 */
export function afterOthers(api: SliceApi, knowsOthers: () => boolean): SliceApi {
  return {
    ...api,
    async list(signal) {
      const answer = await api.list(signal);
      if (knowsOthers()) return answer;
      const hint = 'the driver waits until the API server lists the ResourceSlices of this node';
      const details = { hint, retriable: true };
      throw new SliceError('slice-others-unknown', 'the devices of other drivers are not known yet', details);
    },
  };
}
