import { join } from 'node:path';
import { copyOf } from '../../../lib/copy.ts';
import { deepFreeze } from '../../../lib/freeze.ts';
import { decodeIfWhole } from '../document/decode.ts';
import type { ClaimIdentity, ClaimName, MetadataDocument } from '../document/document.ts';
import { MetadataError, type MetadataErrorCode } from '../errors.ts';
import { claimDirectory, metadataDirName } from '../layouts/layout-v1.ts';
import { claimDirName } from '../layouts/paths.ts';
import type { ClaimRecord } from './claim-record.ts';
import type { ClaimRecords } from './claim-records.ts';
import { type ClaimState, formatClaimState, parseClaimState } from './claim-state.ts';
import { holdDirectories } from './held-directories.ts';
import { type HostFile, hostPath, listDir, listSubdirectories, readFileIfThere, removedPrefix } from './host-file.ts';
import { type Recovery, recoverState } from './recover-state.ts';

/**
 * Reads the states of claims. Only a missing record means that a claim is not prepared. A record that cannot be read is an
 * error, unless a method says otherwise: MetadataError `metadata-io`, or an error of the driver's own records.
 */
export class ClaimStates {
  readonly dataDir: string;
  readonly #records: ClaimRecords;
  /**
   * Latest states with the texts of their records, by directory: each record is read several times while its pod starts, and
   * all are read at each scrape of metrics. The states are frozen, since readers share them.
   */
  readonly #known = new Map<string, { text: string; state: ClaimState }>();

  /** Creates the reader. @param dataDir the driver's directory below the kubelet's `plugins` */
  constructor(records: ClaimRecords, dataDir: string) {
    this.#records = records;
    this.dataDir = dataDir;
  }

  /**
   * Reads the state of a claim.
   * @returns `undefined` if the claim is not prepared
   * @throws MetadataError `metadata-malformed`, `metadata-version-unknown`
   */
  read(claim: ClaimName): ClaimState | undefined {
    return this.readIn(claimDirName(claim));
  }

  /** Reads a state by the name of the claim's directory. */
  readIn(dir: string): ClaimState | undefined {
    const text = this.#records.read(dir);
    const known = this.#known.get(dir);
    if (text === undefined || known?.text === text) return text === undefined ? undefined : known?.state;
    return this.#remember(dir, text, parseClaimState(text, dir, this.#records.locate(dir)));
  }

  #remember(dir: string, text: string, state: ClaimState): ClaimState {
    this.#known.set(dir, { text, state: deepFreeze(state) });
    return state;
  }

  /** Returns the states of all claims. Leaves out unreadable records, which the calls that need them report. */
  readable(): ClaimState[] {
    return this.dirs().claims.flatMap((dir) => {
      try {
        return this.readIn(dir) ?? [];
      } catch (error) {
        if (error instanceof MetadataError) return [];
        throw error;
      }
    });
  }

  /** Runs a task whose writes and removals become one step, if the records support that. */
  together(task: () => void): void {
    if (this.#records.together === undefined) task();
    else this.#records.together(task);
  }

  write(state: ClaimState): void {
    const dir = claimDirName(state.claim);
    const text = formatClaimState(state);
    this.#records.write(dir, text);
    // Parsing takes several times as long as a copy.
    this.#remember(dir, text, copyOf(state));
  }

  /** Removes the record of a claim. Call it after the rest of the claim is removed. */
  remove(claim: ClaimName): void {
    this.#records.remove(claimDirName(claim));
  }

  /**
   * Returns the names of claims' directories, including those of claims with only a record, and the names of removed
   * directories that are not fully deleted yet.
   */
  dirs(): { claims: string[]; removed: string[] } {
    const all = listDir(join(this.dataDir, metadataDirName));
    const isRemoved = (name: string) => name.startsWith(removedPrefix);
    const claims = new Set([...all.filter((name) => !isRemoved(name)), ...this.#records.names()]);
    // Another instance may have removed claims, too.
    for (const dir of this.#known.keys()) if (!claims.has(dir)) this.#known.delete(dir);
    return { claims: [...claims], removed: all.filter(isRemoved) };
  }

  /**
   * Reads the state of a claim that is being prepared. If the record is damaged or missing, recovers as much as the claim's
   * files show.
   * @returns `isRecorded`: whether the state comes from the record; `problem`: the reason why the record cannot be read
   * @throws MetadataError `metadata-version-unknown`: a newer version's record is not overwritten
   */
  readOrRecover(
    record: ClaimRecord,
    recovery: Recovery,
  ): { state: ClaimState | undefined; isRecorded: boolean; problem?: MetadataError | undefined } {
    let problem: MetadataError | undefined;
    try {
      const state = this.read(record.claim);
      // A claim without a directory has no files. Most claims have none when they are first prepared.
      const { base, parts } = claimDirectory(this.dataDir, record.claim);
      const hasFiles = holdDirectories((held) => held.find({ base, parts: [...parts, 'any'] })) !== undefined;
      if (state !== undefined || !hasFiles) return { state, isRecorded: true };
    } catch (error) {
      if (!isCode(error, 'metadata-malformed')) throw error;
      problem = error;
    }
    const state = recoverState(record, recovery, problem !== undefined);
    return { state, isRecorded: false, problem };
  }

  /**
   * Reads the state of a claim that is being unprepared. An unreadable record is no error here: the claim could never be
   * removed.
   */
  readForRemoval(claim: ClaimIdentity): ClaimState | 'unreadable' | undefined {
    try {
      return this.read(claim);
    } catch (error) {
      if (isCode(error, 'metadata-malformed') || isCode(error, 'metadata-version-unknown')) return 'unreadable';
      throw error;
    }
  }

  /** Returns whether the files in a directory without a readable record belong to another claim of the same name. */
  isOfOther(claim: ClaimIdentity): boolean {
    const documents = readDocuments(this.dataDir, claimDirName(claim));
    return documents.length > 0 && documents.every((document) => document.claim.uid !== claim.uid);
  }
}

function isCode(error: unknown, code: MetadataErrorCode): error is MetadataError {
  return error instanceof MetadataError && error.code === code;
}

/** Returns the documents in the files of a claim's directory. */
function readDocuments(dataDir: string, dir: string): MetadataDocument[] {
  const claimDir: HostFile = { base: dataDir, parts: [metadataDirName, dir] };
  return listSubdirectories(claimDir).flatMap((base) => {
    const requestDir: HostFile = { ...claimDir, parts: [...claimDir.parts, base] };
    // Temporary files begin with a dot.
    const names = listDir(hostPath(requestDir)).filter((name) => !name.startsWith('.') && name.endsWith('.json'));
    const files = names.map((name) => ({ ...requestDir, parts: [...requestDir.parts, name] }));
    return files.flatMap((file) => decodeIfWhole(readFileIfThere(file)) ?? []);
  });
}
