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
 * record still says what is left.
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
  write(claimUid: string, files: readonly DeviceInfoFile[]): void {
    const places = files.map(({ name, text }) => ({ file: this.#file(name), text }));
    const isStale = ({ name }: DeviceInfoFile) => !files.some((file) => file.name === name);
    if (this.#recorded(claimUid, files).some(isStale)) this.removeClaim(claimUid, files);
    if (files.length === 0) return;
    createFile(this.#record(claimUid), JSON.stringify(files));
    // The rename replaces an existing file. Its writer has forgotten it, since the device belongs to the claim.
    for (const { file, text } of places) createFile(file, text, { mode: deviceInfoMode });
  }

  /**
   * Removes the files of a claim, and what a killed process left while writing them. A file with other content belongs
   * to another writer by now, and a file that another claim has too is left to that claim.
   * @param known the claim's files if its devices are known: no other claim has these devices, and a damaged record is
   * no obstacle
   * @throws MetadataError `metadata-io`; without `known`, `metadata-malformed` for a damaged record, of any claim
   */
  removeClaim(claimUid: string, known?: readonly DeviceInfoFile[]): void {
    const files = this.#recorded(claimUid, known);
    const others = new Set(files.length === 0 ? [] : this.#namesOfOthers(claimUid, known && []));
    for (const { name, text } of files) {
      if (others.has(name)) continue;
      const found = readFileIfThere(this.#file(name));
      // Also if it does not exist: a temporary file may.
      if (found === undefined || found === text) removeFile(this.#file(name));
    }
    removeFile(this.#record(claimUid));
  }

  /** UIDs of the claims that may have files. */
  claimUids(): string[] {
    const names = listDir(this.#options.recordDir);
    const records = names.filter((name) => name.endsWith(recordSuffix) && !name.startsWith('.'));
    return records.map((name) => name.slice(0, -recordSuffix.length));
  }

  /** @param instead what stands in for damaged records */
  #namesOfOthers(claimUid: string, instead: readonly DeviceInfoFile[] | undefined): string[] {
    const uids = this.claimUids().filter((uid) => uid !== claimUid);
    return uids.flatMap((uid) => this.#recorded(uid, instead)).map(({ name }) => name);
  }

  /**
   * Records are written atomically, so only a power loss or another program leaves part of one.
   * @param instead returned for a damaged record; absent: that is an error
   * @returns none if there is no record
   */
  #recorded(claimUid: string, instead: readonly DeviceInfoFile[] | undefined): readonly DeviceInfoFile[] {
    const record = this.#record(claimUid);
    const text = readFileIfThere(record) ?? '[]';
    try {
      return recordSchema.parse(JSON.parse(text));
    } catch (cause) {
      if (instead !== undefined) return instead;
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
