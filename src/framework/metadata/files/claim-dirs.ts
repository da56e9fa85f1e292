import type { ClaimIdentity } from '../document/document.ts';
import { MetadataError } from '../errors.ts';
import { readAnnouncements, type WaitingSandbox } from '../gate/waiting-sandbox.ts';
import type { LayoutName } from '../layouts/layout.ts';
import { metadataDirName } from '../layouts/layout-v1.ts';
import { readDocuments } from './claim-documents.ts';
import type { ClaimRecords } from './claim-records.ts';
import type { ClaimState } from './claim-state.ts';
import { ClaimStates } from './claim-states.ts';
import { removedPrefix, removeTree } from './host-file.ts';

/** A metadata directory in the driver's own directory. */
export interface ClaimDir {
  dir: string;
  /** Absent if nothing says whose files they are: a crash has left only a part, or there is a problem. */
  claim?: ClaimIdentity;
  /** Why the record of the directory cannot be read. It may be that of a prepared claim. */
  problem?: MetadataError;
}

/** @throws MetadataError `metadata-io` if the directories cannot be listed */
export async function listDirs(states: ClaimStates): Promise<ClaimDir[]> {
  const { claims, removed } = await states.dirs();
  const found = claims.map((dir): ClaimDir => {
    const { state, problem } = readDir(states, dir);
    return { dir, ...(state && { claim: state.claim }), ...(problem && { problem }) };
  });
  return [...found, ...removed.map((dir) => ({ dir }))];
}

/**
 * How many requests of claims have content.
 * @param isVisible whether containers find the files of a claim
 * @throws MetadataError `metadata-io` if the directories cannot be listed
 */
export async function countContents(states: ClaimStates, isVisible: (state: ClaimState) => boolean): Promise<number> {
  let count = 0;
  for (const dir of (await states.dirs()).claims) {
    const { state, problem } = readDir(states, dir);
    if (problem !== undefined) count += await countDocuments(states.dataDir, dir);
    else if (state !== undefined && isVisible(state)) {
      count += Object.values(state.requests).filter(({ content }) => content !== undefined).length;
    }
  }
  return count;
}

/**
 * Sandboxes whose containers wait at a gate, with the claim of the directory that they are announced in.
 * @param now on the clock of the file system
 * @throws MetadataError `metadata-io` if the directories cannot be listed
 */
export async function listWaiting(
  states: ClaimStates,
  now: Date,
): Promise<{ sandboxes: WaitingSandbox[]; problems: MetadataError[] }> {
  const sandboxes: WaitingSandbox[] = [];
  const problems: MetadataError[] = [];
  for (const dir of (await states.dirs()).claims) {
    try {
      const found = await readAnnouncements(states.dataDir, dir, now);
      problems.push(...found.problems);
      const state = found.announcements.length === 0 ? undefined : states.readIn(dir);
      if (state !== undefined) sandboxes.push(...found.announcements.map((each) => ({ claim: state.claim, ...each })));
    } catch (error) {
      if (!(error instanceof MetadataError)) throw error;
      problems.push(error);
    }
  }
  return { sandboxes, problems };
}

/**
 * Removes a directory that has no record, or what an interrupted removal has left of one.
 * @returns whether it was removed: it may have a record by now
 * @throws MetadataError `metadata-io`, `metadata-malformed`, `metadata-version-unknown`
 */
export async function removeClaimless(states: ClaimStates, dir: string): Promise<boolean> {
  if (!dir.startsWith(removedPrefix) && states.readIn(dir) !== undefined) return false;
  await removeTree({ base: states.dataDir, parts: [metadataDirName, dir] });
  return true;
}

function readDir(states: ClaimStates, dir: string): { state?: ClaimState; problem?: MetadataError } {
  try {
    const state = states.readIn(dir);
    return state === undefined ? {} : { state };
  } catch (error) {
    if (error instanceof MetadataError) return { problem: error };
    throw error;
  }
}

/** In a directory without a readable record. */
async function countDocuments(dataDir: string, dir: string): Promise<number> {
  try {
    return new Set((await readDocuments(dataDir, dir)).map(({ base }) => base)).size;
  } catch (error) {
    // It is reported with the directory, by `listDirs`.
    if (error instanceof MetadataError) return 0;
    throw error;
  }
}

/**
 * The layouts that prepared claims have, as far as their records can be read.
 * @throws MetadataError `metadata-io`; errors of the driver's own records
 */
export async function readLayoutsInUse(records: ClaimRecords, dataDir: string): Promise<Set<LayoutName>> {
  const states = new ClaimStates(records, dataDir);
  const inUse = new Set<LayoutName>();
  // An unreadable record is left to the calls that need it.
  for (const dir of (await states.dirs()).claims) {
    for (const layout of readDir(states, dir).state?.layouts ?? []) inUse.add(layout);
  }
  return inUse;
}
