import { defined } from '../../../lib/defined.ts';
import { decodeIfWhole } from '../document/decode.ts';
import type { MetadataDocument } from '../document/document.ts';
import { MetadataError } from '../errors.ts';
import { type HostDirs, type LayoutName, layoutNames, type RequestPlace } from '../layouts/layout.ts';
import { layouts } from '../layouts/layouts.ts';
import type { ClaimRecord } from './claim-record.ts';
import type { ClaimState, RequestState } from './claim-state.ts';
import { type HostFile, listSubdirectories, readFileIfThere } from './host-file.ts';
import { withdrawnFile } from './mounted-file.ts';

/** Layouts whose files contain the claim's UID and the generation. */
const numbered: readonly LayoutName[] = ['v1', 'kep'];

export interface Recovery {
  dirs: HostDirs;
  driver: string;
  now: Date;
}

/**
 * Recovers the state of a claim from its files, in place of a damaged or missing record: layouts, and generations to continue
 * from. The state has no content: only an update can say whether old content is still right.
 * @param record the record that the driver prepares now
 * @param hadRecord whether the record is damaged rather than missing: then files may have had content that they no longer show
 * @returns the state, with the UID of the claim to which the files belong, which may be an earlier claim of the same name
 * @throws MetadataError `metadata-io`
 */
export function recoverState(record: ClaimRecord, recovery: Recovery, hadRecord: boolean): ClaimState {
  const { claim, podClaimName } = record;
  const [podUid = record.podUid, ...others] = findPods(record, recovery);
  const otherPodUids = others.length === 0 ? undefined : others;
  const names = { claim, ...defined({ podClaimName, podUid: podUid || undefined, otherPodUids }) };
  const found = new Set<LayoutName>();
  const requests: Record<string, RequestState> = {};
  let uid = claim.uid;
  for (const [base, { name }] of Object.entries(record.requests)) {
    const texts = readTexts({ ...names, request: base, driver: recovery.driver }, recovery);
    for (const layout of texts.keys()) found.add(layout);
    const written = numbered.flatMap((layout) => texts.get(layout) ?? []);
    const documents = written.flatMap((text) => decodeIfWhole(text) ?? []);
    uid = documents.find((document) => document.claim.uid !== claim.uid)?.claim.uid ?? uid;
    requests[base] = { name, devices: [], generation: generationOf(written, documents, recovery.now, hadRecord) };
  }
  return {
    ...names,
    claim: { ...claim, uid },
    layouts: layoutNames.filter((name) => found.has(name)),
    requests,
    servedBy: null,
  };
}

/**
 * Returns the generation to continue from. If the files may have had a generation that they no longer show, returns the time in
 * seconds, which is higher than any number of changes.
 */
function generationOf(
  written: readonly string[],
  documents: readonly MetadataDocument[],
  now: Date,
  hadRecord: boolean,
): number {
  if (documents.length > 0) return Math.max(...documents.map(({ generation }) => generation));
  // A new file is empty; a file with withdrawn content has blanks.
  const isUnwritten = written.length === 0 ? !hadRecord : written.every((text) => text === '');
  return isUnwritten ? 0 : Math.floor(now.getTime() / 1000);
}

/**
 * Returns the existing files of a request, by layout, including withdrawn files: containers may have read a generation in them.
 */
function readTexts(place: RequestPlace, { dirs }: Recovery): Map<LayoutName, string> {
  const texts = new Map<LayoutName, string>();
  for (const name of layoutNames) {
    const file = fileIn(name, dirs, place);
    const text = file && (readFileIfThere(file) ?? readFileIfThere(withdrawnFile(file)));
    if (text !== undefined) texts.set(name, text);
  }
  return texts;
}

/** Returns a file of a layout; `undefined` if the layout cannot name a file for the claim. */
function fileIn(name: LayoutName, dirs: HostDirs, place: RequestPlace): HostFile | undefined {
  try {
    return layouts[name].hostFile(dirs, place);
  } catch (error) {
    if (error instanceof MetadataError && error.code === 'metadata-name-invalid') return undefined;
    throw error;
  }
}

/** Returns the pods in whose directories the claim has files. */
function findPods({ claim, requests }: ClaimRecord, { dirs, driver }: Recovery): string[] {
  const hasFile = (podUid: string, request: string) => {
    const file = fileIn('downward-api', dirs, { claim, podUid, request, driver });
    const text = file && readFileIfThere(file);
    return [claim.uid, driver].every((part) => text?.includes(JSON.stringify(part)));
  };
  const pods = listSubdirectories({ base: dirs.downwardApiDir, parts: [] });
  return pods.filter((podUid) => Object.keys(requests).some((request) => hasFile(podUid, request)));
}
