import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { errnoCode, explain } from '../../lib/errors.ts';
import { isTooDeep } from '../../lib/json-depth.ts';
import { pciAddressPattern } from '../sriov/pci-address.ts';
import type { ExclusionVerdict } from './exclusion.ts';

/**
 * Path of the kubelet's checkpoint of device plugins. It does not depend on `--root-dir`: Kubernetes, `DevicePluginPath` of
 * the device plugin API.
 */
export const kubeletCheckpoint = '/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint';

/**
 * Maximum size of the file, MiB. 1,000 VFs and 500 containers take less than 1 MiB; plugins that share GPUs have many more
 * devices.
 */
const mostMebibytes = 16;

/** Owners of PCI functions by PCI address: the resource name of a device plugin, or the name of another DRA driver. */
export type GivenOut = ReadonlyMap<string, string>;

const none: GivenOut = new Map();

/**
 * Returns the reason to exclude a function because of a device plugin, if there is one.
 * @param givenOut `undefined` if unknown: a device plugin may then manage the function
 */
function judgePlugin(pciAddress: string, givenOut: GivenOut | undefined): ExclusionVerdict | undefined {
  if (givenOut === undefined) return { reason: 'device-plugin-unknown' };
  const resourceName = givenOut.get(pciAddress);
  return resourceName === undefined ? undefined : { reason: 'device-plugin', resourceName };
}

/** Returns the reason to exclude a function because a device plugin or another DRA driver manages it, if there is one. */
export function judgeOwner(
  pciAddress: string,
  { givenOut, otherDrivers }: { givenOut: GivenOut | undefined; otherDrivers: GivenOut },
): ExclusionVerdict | undefined {
  const driver = otherDrivers.get(pciAddress);
  return driver === undefined ? judgePlugin(pciAddress, givenOut) : { reason: 'other-driver', driver };
}

/** Reads the file, and returns the reasons why devices are not free, by PCI address. Devices without an entry are free. */
export async function judgeAll(
  plugins: Pick<DevicePlugins, 'read'>,
  devices: readonly { pciAddress: string }[],
): Promise<Map<string, ExclusionVerdict>> {
  const { givenOut } = await plugins.read();
  const verdicts = devices.map(({ pciAddress }) => [pciAddress, judgePlugin(pciAddress, givenOut)] as const);
  return new Map(verdicts.filter((entry): entry is [string, ExclusionVerdict] => entry[1] !== undefined));
}

/**
 * Reads from the kubelet's checkpoint which PCI functions device plugins manage. The SR-IOV network device plugin uses PCI
 * addresses as device IDs. The kubelet updates the file when it allocates a device, and five minutes after a plugin has gone.
 * Source: Kubernetes, pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go.
 */
export class DevicePlugins {
  readonly #path: string;
  /** Last version of the file. With `error`, that version is damaged, and `givenOut` is the content of an earlier one. */
  #known: { file: object; givenOut: GivenOut | undefined; error?: unknown } | undefined;

  /** @param path path of `kubelet_internal_checkpoint` in the kubelet's directory `device-plugins` */
  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Reads the file if it has changed.
   * @returns `error` if it cannot be read, with `problem` as its description; `givenOut` then keeps its earlier value, or is
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
 * Parses a checkpoint. @param before earlier content of the file
 * @throws Error if the text is no checkpoint
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
    // The list is empty after a restart of the kubelet or the plugin, until the plugin has registered again.
    add(resource, Array.isArray(ids) && ids.length === 0 ? earlier.get(resource) : ids);
  }
  for (const entry of Array.isArray(data.PodDeviceEntries) ? data.PodDeviceEntries : []) {
    const { ResourceName: resource, DeviceIDs: ids } = Object(entry);
    // If the plugin is gone, the entry is ignored: the kubelet removes entries of deleted pods only when another pod requests
    // the resource.
    if (!Object.hasOwn(registered, resource)) continue;
    // The IDs are a map by NUMA node; before Kubernetes 1.20 they were a list.
    for (const each of Array.isArray(ids) ? [ids] : Object.values(Object(ids))) add(resource, each);
  }
  return givenOut;
}
