import { FollowedList, type FollowedListOptions, type ResourceApi } from '../../framework/kube/index.ts';
import type { ResourceSlice } from '../../framework/resourceslice/index.ts';
import { resolvesWithin } from '../../lib/clock.ts';
import type { GivenOut } from '../../node/inventory/index.ts';
import { isPciAddress } from '../../node/sriov/index.ts';

/** How long the first answer of the API server is waited for. */
const firstAnswerMs = 2_000;

/**
 * Attributes that name the PCI function of a device, without their domain: `resource.kubernetes.io/pciBusID` (KEP-4381), and what drivers of
 * networks have in their own domains, such as `dra.net/pciAddress`.
 */
const addressAttributes: ReadonlySet<string> = new Set(['pciBusID', 'pciAddress']);

export interface OtherDriversOptions extends Pick<FollowedListOptions<ResourceSlice>, 'clock' | 'logger' | 'random'> {
  resources: ResourceApi;
  /** Name of this driver. */
  driver: string;
  node: string;
}

/**
 * The PCI functions that other DRA drivers offer on the node, by their ResourceSlices. Neither the scheduler nor a kubelet notices that
 * two drivers offer the same one. Decision: docs/decisions/0077-devices-of-other-drivers-are-not-offered.md
 */
export class OtherDrivers implements AsyncDisposable {
  readonly #slices: FollowedList<ResourceSlice>;
  readonly #options: OtherDriversOptions;

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

  /** Returns as soon as the API server has answered, and after two seconds at the latest. */
  async start(): Promise<void> {
    this.#slices.start();
    await resolvesWithin(this.#options.clock, firstAnswerMs, this.#slices.whenAnswered());
  }

  /** The driver that offers each function, by PCI address; `undefined` until the slices were listed. */
  get offered(): GivenOut | undefined {
    const { objects } = this.#slices;
    if (objects === undefined) return undefined;
    const offered = new Map<string, string>();
    for (const { spec } of objects.values()) {
      for (const { attributes = {} } of spec.devices ?? []) {
        for (const [name, value] of Object.entries(attributes)) {
          if (!addressAttributes.has(name.slice(name.indexOf('/') + 1)) || !('string' in value)) continue;
          const address = value.string.toLowerCase();
          if (isPciAddress(address)) offered.set(address, spec.driver);
        }
      }
    }
    return offered;
  }

  [Symbol.asyncDispose]() {
    return this.#slices[Symbol.asyncDispose]();
  }
}
