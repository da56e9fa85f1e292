import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { errnoCode, explain } from '../../lib/errors.ts';
import { isTooDeep } from '../../lib/json-depth.ts';
import { pciAddressPattern } from '../sriov/pci-address.ts';
import type { ExclusionVerdict } from './exclusion.ts';

/** The kubelet uses this path whatever its `--root-dir` is: Kubernetes, `DevicePluginPath` of the device plugin API. */
export const kubeletCheckpoint = '/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint';

/** Limit for the file. 1,000 VFs and 500 containers take less than 1 MiB; plugins that share GPUs have many more devices. */
const mostMebibytes = 16;

/** Devices that the kubelet's device plugins manage: the resource of each, by PCI address. */
export type GivenOut = ReadonlyMap<string, string>;

const none: GivenOut = new Map();

/**
 * Returns the reason to exclude a function because of a device plugin, if there is one.
 * @param givenOut `undefined`: unknown, so that a device plugin may manage the function
 */
function judgePlugin(pciAddress: string, givenOut: GivenOut | undefined): ExclusionVerdict | undefined {
  if (givenOut === undefined) return { reason: 'device-plugin-unknown' };
  const resourceName = givenOut.get(pciAddress);
  return resourceName === undefined ? undefined : { reason: 'device-plugin', resourceName };
}

/** Judges whether a device plugin or another DRA driver gives out a function. */
export function judgeOwner(
  pciAddress: string,
  { givenOut, otherDrivers }: { givenOut: GivenOut | undefined; otherDrivers: GivenOut },
): ExclusionVerdict | undefined {
  const driver = otherDrivers.get(pciAddress);
  return driver === undefined ? judgePlugin(pciAddress, givenOut) : { reason: 'other-driver', driver };
}

/** @returns by PCI address, why a device is not free, as the file says now; the others are free */
export async function judgeAll(
  plugins: Pick<DevicePlugins, 'read'>,
  devices: readonly { pciAddress: string }[],
): Promise<Map<string, ExclusionVerdict>> {
  const { givenOut } = await plugins.read();
  const verdicts = devices.map(({ pciAddress }) => [pciAddress, judgePlugin(pciAddress, givenOut)] as const);
  return new Map(verdicts.filter((entry): entry is [string, ExclusionVerdict] => entry[1] !== undefined));
}

/**
 * Reads which PCI functions device plugins manage, from the kubelet's checkpoint. The SR-IOV network device plugin uses PCI
 * addresses as device ids. The kubelet updates the file when it allocates a device, and five minutes after a plugin has
 * gone.
 * Source: Kubernetes, pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go.
 */
export class DevicePlugins {
  readonly #path: string;
  /** Last parsed file; `error`: the file is damaged, and `givenOut` holds its earlier content. */
  #known: { file: object; givenOut: GivenOut | undefined; error?: unknown } | undefined;

  /** @param path `kubelet_internal_checkpoint` below the kubelet's `device-plugins` */
  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Reads the file again if it has changed.
   * @returns `error` is why it cannot be read, and `problem` describes it; `givenOut` then keeps its earlier value,
   * `undefined` if the file was never read
   */
  async read(): Promise<{ givenOut: GivenOut | undefined; error?: unknown; problem?: string }> {
    let file: FileHandle | undefined;
    try {
      file = await open(this.#path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
      const { size, mtimeMs, ino, isFile } = await statOf(file);
      if (!isFile) throw new Error('it is not a file');
      if (size > mostMebibytes << 20) throw new Error(`it has more than ${mostMebibytes} MiB`);
      const identity = { size, mtimeMs, ino };
      if (!isDeepStrictEqual(this.#known?.file, identity)) this.#parse(identity, await readAtMost(file, size));
      if (this.#known?.error !== undefined) throw this.#known.error;
      return { givenOut: this.#known?.givenOut };
    } catch (error) {
      // A kubelet that never had a device plugin has no such file.
      if (errnoCode(error) === 'ENOENT') {
        this.#known = undefined;
        return { givenOut: none };
      }
      const givenOut = this.#known?.givenOut;
      const effect =
        givenOut === undefined ? 'no device is offered until it can be read' : 'its last readable content counts';
      return { givenOut, error, problem: `${this.#path} cannot be read (${explain(error)}): ${effect}` };
    } finally {
      await file?.close();
    }
  }

  #parse(file: object, text: string): void {
    const before = this.#known?.givenOut;
    try {
      this.#known = { file, givenOut: parseCheckpoint(text, before) };
    } catch (error) {
      this.#known = { file, givenOut: before, error };
    }
  }
}

async function statOf(file: FileHandle) {
  const stats = await file.stat();
  return { size: stats.size, mtimeMs: stats.mtimeMs, ino: stats.ino, isFile: stats.isFile() };
}

async function readAtMost(file: FileHandle, size: number): Promise<string> {
  const buffer = Buffer.alloc(size);
  const { bytesRead } = await file.read(buffer, 0, size, 0);
  return buffer.toString('utf8', 0, bytesRead);
}

/**
 * @param before earlier content of the file
 * @throws Error if it is no checkpoint
 */
function parseCheckpoint(text: string, before = none): GivenOut {
  const checkpoint: unknown = JSON.parse(text);
  if (isTooDeep(checkpoint)) throw new Error('it is nested too deep');
  const data = Object(Object(checkpoint).Data);
  const givenOut = new Map<string, string>();
  const add = (resource: unknown, ids: unknown) => {
    for (const id of Array.isArray(ids) ? ids : []) {
      if (typeof id === 'string' && pciAddressPattern.test(id)) givenOut.set(id, `${resource}`);
    }
  };
  const registered: object = Object(data.RegisteredDevices);
  const earlier = Map.groupBy(before.keys(), (id) => before.get(id));
  for (const [resource, ids] of Object.entries(registered)) {
    // Empty: kubelet or plugin has restarted, and the plugin has not registered again.
    add(resource, Array.isArray(ids) && ids.length === 0 ? earlier.get(resource) : ids);
  }
  for (const entry of Array.isArray(data.PodDeviceEntries) ? data.PodDeviceEntries : []) {
    const { ResourceName: resource, DeviceIDs: ids } = Object(entry);
    // The plugin is gone: the kubelet removes entries of deleted pods only when another pod requests such a resource.
    if (!Object.hasOwn(registered, resource)) continue;
    // A map by NUMA node; before Kubernetes 1.20 a list.
    for (const each of Array.isArray(ids) ? [ids] : Object.values(Object(ids))) add(resource, each);
  }
  return givenOut;
}
