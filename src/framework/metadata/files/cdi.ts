import { formatGoJson } from '../document/json-stream.ts';
import { MetadataError } from '../errors.ts';
import { fileName, isPathPart, pathPart } from '../layouts/paths.ts';
import { checkEdits } from './check-edits.ts';
import { createFile, type HostFile, hasText, listDir, readFileIfThere, removeFile } from './host-file.ts';
import { removeUnknownIn, uidAfter } from './unknown-files.ts';

/** Changes to a container by a CDI device. Source: Container Device Interface specification, `containerEdits`. */
export interface ContainerEdits {
  /** Mounts. `type` is a type of file system, by default `bind`. `hostPath` is a path only with `bind`. */
  mounts?: { type?: string; hostPath: string; containerPath: string; options: string[] }[];
  /** Device nodes. `fileMode` is a number as in Node's `fs`, such as 0o660. */
  deviceNodes?: {
    path: string;
    hostPath?: string;
    permissions?: string;
    uid?: number;
    gid?: number;
    fileMode?: number;
  }[];
  /** Environment variables, each `NAME=value`. */
  env?: string[];
  /**
   * OCI hooks, which the runtime runs as programs of the host. `args` starts with the program's name; `timeout` is in seconds.
   */
  hooks?: { hookName: string; path: string; args: string[]; timeout: number }[];
}

/** Class of the CDI specs that mount the metadata of claims. Source: KEP-5304 "Generate CDI spec". */
export const metadataClass = 'metadata';

/**
 * CDI specs of one class for claims. Each spec is a file with one device, of kind `{driver}/{class}` and name
 * `{claimUID}_{name}`. IDs depend on nothing else, so that preparing a claim again gives the same ones. Source: KEP-5304
 * "Generate CDI spec", where the class is `metadata` and the names are requests.
 */
export class ClaimSpecs {
  readonly #dir: string;
  readonly #driver: string;
  readonly #class: string;

  constructor(options: { dir: string; driver: string; class: string }) {
    this.#dir = options.dir;
    this.#driver = pathPart(options.driver, 'driver name');
    this.#class = options.class;
  }

  /** Returns the CDI ID that the kubelet passes to the runtime. */
  deviceId(claimUid: string, name: string): string {
    return `${this.#driver}/${this.#class}=${deviceName(claimUid, name)}`;
  }

  /**
   * Writes a spec, unless the file has the same content already. @throws MetadataError `metadata-io`, `metadata-name-invalid`
   */
  write(claimUid: string, name: string, containerEdits: ContainerEdits): void {
    const spec = {
      // The first version whose device names may start with a digit, as most UIDs do.
      cdiVersion: '0.5.0',
      kind: `${this.#driver}/${this.#class}`,
      devices: [{ name: deviceName(claimUid, name), containerEdits }],
    };
    const [file, text] = [this.#file(claimUid, name), formatGoJson(spec)];
    // Each written spec makes runtimes read all specs of the node again.
    if (!hasText(file, text)) createFile(file, text);
  }

  /** Returns whether a spec exists and has its device. @throws MetadataError `metadata-io`, `metadata-name-invalid` */
  has(claimUid: string, name: string): boolean {
    const text = readFileIfThere(this.#file(claimUid, name));
    try {
      return text !== undefined && JSON.parse(text).devices[0].name === deviceName(claimUid, name);
    } catch {
      return false;
    }
  }

  /**
   * Removes the specs of a claim for these names, without listing those of other claims. @throws MetadataError `metadata-io`
   */
  remove(claimUid: string, names: readonly string[]): void {
    for (const name of names) removeFile(this.#file(claimUid, name));
  }

  /**
   * Removes all specs of claims, and temporary files of a killed process. Ignores UIDs that cannot be part of a path: they have
   * no specs.
   */
  removeClaims(claimUids: readonly string[]): void {
    const prefixes = claimUids.filter(isPathPart).map((uid) => this.#prefix(uid));
    if (prefixes.length === 0) return;
    for (const file of listDir(this.#dir)) {
      const isOf = (prefix: string) =>
        (file.startsWith(prefix) && file.endsWith('.json')) || (file.startsWith(`.${prefix}`) && file.endsWith('.tmp'));
      if (prefixes.some(isOf)) removeFile({ base: this.#dir, parts: [file] });
    }
  }

  /**
   * Removes specs of claims that no longer exist, and temporary files of a killed process.
   * @param known returns UIDs of existing claims; called after the specs are listed
   * @returns paths of removed files
   */
  removeUnknown(known: () => ReadonlySet<string>): string[] {
    const prefix = `${this.#driver}_${this.#class}_`;
    const uidOf = (name: string) => uidAfter(prefix, name.startsWith('.') ? name.slice(1) : name);
    return removeUnknownIn({ base: this.#dir, parts: [] }, uidOf, known);
  }

  #prefix(claimUid: string): string {
    return `${this.#driver}_${this.#class}_${pathPart(claimUid, 'claim UID')}_`;
  }

  #file(claimUid: string, name: string): HostFile {
    const file = `${this.#prefix(claimUid)}${pathPart(name, 'CDI device name')}.json`;
    return { base: this.#dir, parts: [fileName(file, `CDI spec of claim ${claimUid}`)] };
  }
}

/** CDI specs of the driver's own class. The class cannot be `metadata`: the framework overwrites and removes its specs. */
export class CdiSpecs extends ClaimSpecs {
  /**
   * Creates the specs of a class. @throws MetadataError `metadata-name-invalid` for the class `metadata`, or an invalid class
   */
  constructor(options: { dir: string; driver: string; class: string }) {
    const { class: name } = options;
    const refuse = (reason: string, hint: string) =>
      new MetadataError('metadata-name-invalid', `class ${JSON.stringify(name)} of CDI specs ${reason}`, { hint });
    if (!/^[A-Za-z]([\w-]*[A-Za-z0-9])?$/.test(name)) {
      throw refuse(
        'is invalid',
        'it must begin with a letter, end with a letter or digit, and contain only letters, digits, "-" and "_"',
      );
    }
    if (name === metadataClass) throw refuse('is reserved for the metadata of claims', 'choose another one');
    super(options);
  }

  /**
   * Writes a spec, unless the file has the same content already.
   * @param name part of the device's name: letters, digits and `_.:-`, with a letter or digit at the end
   * @throws MetadataError `metadata-io`, `metadata-name-invalid`; `metadata-invalid` for edits that no runtime accepts
   */
  override write(claimUid: string, name: string, containerEdits: ContainerEdits): void {
    if (!/^[\w.:-]*[A-Za-z0-9]$/.test(name)) {
      const message = `${JSON.stringify(name)} cannot be part of a CDI device's name`;
      throw new MetadataError('metadata-name-invalid', message);
    }
    checkEdits(this.deviceId(claimUid, name), containerEdits);
    super.write(claimUid, name, containerEdits);
  }
}

function deviceName(claimUid: string, name: string): string {
  return `${pathPart(claimUid, 'claim UID')}_${pathPart(name, 'CDI device name')}`;
}
