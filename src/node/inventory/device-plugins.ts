import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import { errnoCode, explain } from '../../lib/errors.ts';
import { isTooDeep } from '../../lib/json-depth.ts';
import { pciAddressPattern } from '../sriov/pci-address.ts';
import type { ExclusionVerdict } from './exclusion.ts';

/** The kubelet has this path whatever its `--root-dir` is: Kubernetes, `DevicePluginPath` of the device plugin API. */
export const kubeletCheckpoint = '/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint';

/** 1,000 VFs and 500 containers take less than 1 MiB; plugins that share GPUs have many more devices. */
const mostMebibytes = 16;

/** Devices that the kubelet's device plugins give out: the resource of each, by PCI address. */
export type GivenOut = ReadonlyMap<string, string>;

const none: GivenOut = new Map();

/**
 * Judges whether a device plugin gives out a function.
 * @param givenOut `undefined`: unknown, so that it may be given out
 */
export function judgePlugin(pciAddress: string, givenOut: GivenOut | undefined): ExclusionVerdict | undefined {
  if (givenOut === undefined) return { reason: 'device-plugin-unknown' };
  const resourceName = givenOut.get(pciAddress);
  return resourceName === undefined ? undefined : { reason: 'device-plugin', resourceName };
}

/**
 * Reads which PCI functions device plugins give out, from the kubelet's checkpoint. The SR-IOV network device plugin has PCI addresses
 * as device ids. The kubelet updates the file when it gives out a device, and five minutes after a plugin has gone.
 * Source: Kubernetes, pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go.
 */
export class DevicePlugins {
  readonly #path: string;
  /** What was parsed last; `error`: the file is damaged, and `givenOut` is what it said before. */
  #known: { file: object; givenOut: GivenOut | undefined; error?: unknown } | undefined;

  /** @param path `kubelet_internal_checkpoint` below the kubelet's `device-plugins` */
  constructor(path: string) {
    this.#path = path;
  }

  /**
   * Reads the file again if it has changed.
   * @returns `error` is why it cannot be read, and `problem` says so; then `givenOut` is as it was before, `undefined` if it was never
   * read
   */
  async read(): Promise<{ givenOut: GivenOut | undefined; error?: unknown; problem?: string }> {
    let file: FileHandle | undefined;
    try {
      file = await open(this.#path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
      const { size, mtimeMs, ino, isFile } = await statOf(file);
      if (!isFile) throw new Error('it is no file');
      if (size > mostMebibytes << 20) throw new Error(`it has more than ${mostMebibytes} MiB`);
      const identity = { size, mtimeMs, ino };
      if (!isDeepStrictEqual(this.#known?.file, identity)) this.#parse(identity, await readAtMost(file, size));
      if (this.#known?.error !== undefined) throw this.#known.error;
      return { givenOut: this.#known?.givenOut };
    } catch (error) {
      // A kubelet that has never had a device plugin has no such file.
      if (errnoCode(error) === 'ENOENT') {
        this.#known = undefined;
        return { givenOut: none };
      }
      const givenOut = this.#known?.givenOut;
      const effect = givenOut === undefined ? 'no device is offered until it can be' : 'what it said before counts';
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
 * @param before what the file said earlier
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
    // None: kubelet or plugin has restarted, and the plugin has not registered again.
    add(resource, Array.isArray(ids) && ids.length === 0 ? earlier.get(resource) : ids);
  }
  for (const entry of Array.isArray(data.PodDeviceEntries) ? data.PodDeviceEntries : []) {
    const { ResourceName: resource, DeviceIDs: ids } = Object(entry);
    // Without its plugin: the kubelet removes entries of pods that are gone only when another pod asks for such a resource.
    if (!Object.hasOwn(registered, resource)) continue;
    // By NUMA node; before Kubernetes 1.20 a list.
    for (const each of Array.isArray(ids) ? [ids] : Object.values(Object(ids))) add(resource, each);
  }
  return givenOut;
}
