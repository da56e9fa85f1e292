import * as z from 'zod';
import {
  createFile,
  type HostFile,
  hostPath,
  listDir,
  readFileIfThere,
  removeFile,
} from '../../framework/metadata/files/host-file.ts';
import { MetadataError } from '../../framework/metadata/index.ts';
import { fileName, pathPart } from '../../framework/metadata/layouts/paths.ts';
import { type DeviceInfoFile, deviceInfoMode } from './device-info.ts';

const recordSuffix = '.json';
const recordSchema = z.array(z.object({ name: z.string(), text: z.string() }));

export interface DeviceInfoFilesOptions {
  /** On the host, shared with other writers: see `deviceInfoDir`. */
  dir: string;
  /** Ours alone: which files were written for which claim. */
  recordDir: string;
}

/**
 * The device-info files of claims. Nothing in such a file says who wrote it, and device plugins write to the same
 * directory, so each claim has a record: written before its files, removed after them. After any interruption the
 * record still says what is left. Calls for one claim must not overlap.
 */
export class DeviceInfoFiles {
  readonly #options: DeviceInfoFilesOptions;

  constructor(options: DeviceInfoFilesOptions) {
    this.#options = options;
  }

  /**
   * Replaces the claim's device-info files. A damaged record is written anew.
   * @throws MetadataError `metadata-io`
   */
  async write(claimUid: string, files: readonly DeviceInfoFile[]): Promise<void> {
    const places = files.map(({ name, text }) => ({ file: this.#file(name), text }));
    const isStale = ({ name }: DeviceInfoFile) => !files.some((file) => file.name === name);
    if ((await this.#recordedOr(files, claimUid)).some(isStale)) await this.removeClaim(claimUid, files);
    if (files.length === 0) return;
    await createFile(this.#record(claimUid), JSON.stringify(files));
    // The rename replaces an existing file. Its writer has forgotten it, since the device belongs to the claim.
    for (const { file, text } of places) await createFile(file, text, { mode: deviceInfoMode });
  }

  /**
   * Removes the files of a claim, and what a killed process left while writing them. A file with other content belongs
   * to another writer by now, and a file that another claim has too is left to that claim.
   * @param known the claim's files if its devices are known: no other claim has these devices, and a damaged record is
   * no obstacle
   * @throws MetadataError `metadata-io`; without `known`, `metadata-malformed` for a damaged record, of any claim
   */
  async removeClaim(claimUid: string, known?: readonly DeviceInfoFile[]): Promise<void> {
    const files = await this.#recordedOr(known, claimUid);
    const others = files.length === 0 ? new Set<string>() : await this.#namesOfOthers(claimUid, known && []);
    for (const { name, text } of files) {
      if (others.has(name)) continue;
      const found = await readFileIfThere(this.#file(name));
      // Also if it does not exist: a temporary file may.
      if (found === undefined || found === text) await removeFile(this.#file(name));
    }
    await removeFile(this.#record(claimUid));
  }

  /** UIDs of the claims that may have files. */
  async claimUids(): Promise<string[]> {
    const records = (await listDir(this.#options.recordDir)).filter(
      (name) => name.endsWith(recordSuffix) && !name.startsWith('.'),
    );
    return records.map((name) => name.slice(0, -recordSuffix.length));
  }

  /** @param instead what stands in for damaged records */
  async #namesOfOthers(claimUid: string, instead: readonly DeviceInfoFile[] | undefined): Promise<Set<string>> {
    const uids = (await this.claimUids()).filter((uid) => uid !== claimUid);
    const files = await Promise.all(uids.map((uid) => this.#recordedOr(instead, uid)));
    return new Set(files.flat().map(({ name }) => name));
  }

  /** @param instead returned for a damaged record; absent: that is an error */
  async #recordedOr(
    instead: readonly DeviceInfoFile[] | undefined,
    claimUid: string,
  ): Promise<readonly DeviceInfoFile[]> {
    return await this.#recorded(claimUid).catch((error: unknown) => {
      const isDamaged = error instanceof MetadataError && error.code === 'metadata-malformed';
      if (isDamaged && instead !== undefined) return instead;
      throw error;
    });
  }

  /**
   * Records are written atomically, so only a power loss or another program leaves part of one.
   * @returns none if there is no record
   */
  async #recorded(claimUid: string): Promise<DeviceInfoFile[]> {
    const record = this.#record(claimUid);
    const text = (await readFileIfThere(record)) ?? '[]';
    try {
      return recordSchema.parse(JSON.parse(text));
    } catch (cause) {
      const path = hostPath(record);
      throw new MetadataError('metadata-malformed', `record ${path} of the device-info files of a claim is damaged`, {
        cause,
        path,
        hint: `remove it, and the files in ${this.#options.dir} of devices that no claim has`,
      });
    }
  }

  #record(claimUid: string): HostFile {
    const name = fileName(`${pathPart(claimUid, 'claim UID')}${recordSuffix}`, `record of claim ${claimUid}`);
    return { base: this.#options.recordDir, parts: [name] };
  }

  #file(name: string): HostFile {
    return {
      base: this.#options.dir,
      parts: [fileName(pathPart(name, 'name of a device-info file'), 'device-info file')],
    };
  }
}
