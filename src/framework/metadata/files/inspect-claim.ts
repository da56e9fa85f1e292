import { defined } from '../../../lib/defined.ts';
import type { ClaimIdentity, ClaimName, DeviceMetadata } from '../document/document.ts';
import { type Gate, readGate } from '../gate/gate.ts';
import { type HostDirs, type LayoutName, type PublishedDevice, placeOf } from '../layouts/layout.ts';
import { layouts } from '../layouts/layouts.ts';
import { claimDirName } from '../layouts/paths.ts';
import { type ClaimRecords, RecordFiles } from './claim-records.ts';
import { type ClaimState, contentOf, hasGate, parseClaimState, requestOf } from './claim-state.ts';
import { hostPath, readFileIfThere } from './host-file.ts';

/** A file of a prepared claim on the host, and whether it is correct. */
export interface InspectedFile {
  /** Base name of the request. */
  request: string;
  layout: LayoutName;
  path: string;
  /**
   * Comparison with the record. `current`: the file has the recorded content. `pending`: it has no content yet, as intended.
   * `missing`: it should have content, or should exist for containers to mount. `different`: it has other content, or exists
   * too early.
   */
  state: 'current' | 'pending' | 'missing' | 'different';
}

export interface InspectedRequest {
  /** Full reference, `request` or `request/subrequest`. */
  name: string;
  /** The part of the name before the slash. */
  base: string;
  /** Generation of the content; 0: no content was ever written. */
  generation: number;
  devices: readonly PublishedDevice[];
  /** Recorded metadata of the request's devices. */
  content?: DeviceMetadata[];
}

export interface InspectedClaim {
  claim: ClaimIdentity;
  podClaimName?: string;
  podUid?: string;
  requests: InspectedRequest[];
  files: InspectedFile[];
  /** State of the gate file; `silent`: the file is missing or empty, so that containers wait. Absent if the claim has no gate. */
  gate?: Gate | 'silent';
}

/**
 * Compares the files of a claim with its record. Read-only.
 * @returns `undefined` if the claim is not prepared here
 * @throws MetadataError `metadata-io`, `metadata-malformed`
 */
export async function inspectClaim(
  driver: string,
  dirs: HostDirs,
  claim: ClaimName,
  records: ClaimRecords = new RecordFiles(dirs.dataDir),
): Promise<InspectedClaim | undefined> {
  const dir = claimDirName(claim);
  const text = records.read(dir);
  if (text === undefined) return undefined;
  const state = parseClaimState(text, dir, records.locate(dir));
  const bases = Object.keys(state.requests).sort();
  const { podClaimName, podUid } = state;
  const gate = hasGate(state) ? (readGate(dirs.dataDir, state.claim) ?? ('silent' as const)) : undefined;
  return {
    claim: state.claim,
    ...defined({ podClaimName, podUid, gate }),
    requests: Object.entries(state.requests).map(([base, { name, generation, content }]) => ({
      // Containers of a claim without layouts got no file.
      name,
      base,
      generation: state.layouts.length === 0 ? 0 : generation,
      devices: contentOf(state, base, driver).published,
      ...defined({ content: content?.devices }),
    })),
    files: bases.flatMap((base) => state.layouts.map((layout) => inspectFile(driver, dirs, state, base, layout))),
  };
}

function inspectFile(
  driver: string,
  dirs: HostDirs,
  state: ClaimState,
  request: string,
  name: LayoutName,
): InspectedFile {
  const layout = layouts[name];
  const content = contentOf(state, request, driver);
  const file = layout.hostFile(dirs, placeOf(content));
  const blank = requestOf(state, request).isGated ? '' : undefined;
  const wanted = layout.encode(content)?.trimEnd() ?? blank;
  const found = readFileIfThere(file)?.trimEnd();
  return { request, layout: name, path: hostPath(file), state: compare(wanted, found) };
}

/** Compares a file with the record. @param wanted `undefined`: no file; empty: a file without content yet */
function compare(wanted: string | undefined, found: string | undefined): InspectedFile['state'] {
  if (found === wanted) return wanted ? 'current' : 'pending';
  return found === undefined || (wanted !== undefined && found === '') ? 'missing' : 'different';
}
