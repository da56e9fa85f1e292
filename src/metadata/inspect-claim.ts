import { type ClaimState, contentOf, readClaimState } from './claim-state.ts';
import type { ClaimIdentity } from './document.ts';
import { hostPath, readFileIfThere } from './host-file.ts';
import { type HostDirs, type LayoutName, placeOf } from './layout.ts';
import { layouts } from './layouts.ts';

/** A file of a prepared claim on the host, and whether it is as it should be. */
export interface InspectedFile {
  /** Base name of the request. */
  request: string;
  layout: LayoutName;
  path: string;
  /**
   * `current`: it says what the driver knows. `pending`: there is none, and there is to be none yet. `missing`: there is
   * none, but there should be. `different`: it says something else, or is there too early.
   */
  state: 'current' | 'pending' | 'missing' | 'different';
}

export interface InspectedClaim {
  claim: ClaimIdentity;
  podClaimName?: string;
  podUid?: string;
  requests: { name: string; base: string; generation: number; devices: ClaimState['requests'][string]['devices'] }[];
  files: InspectedFile[];
}

/**
 * Compares the files of a claim with what is recorded of it. Only reads.
 * @returns `undefined` if the claim is not prepared here
 * @throws MetadataError `metadata-io`, `metadata-malformed`
 */
export async function inspectClaim(
  driver: string,
  dirs: HostDirs,
  claim: Pick<ClaimIdentity, 'namespace' | 'name'>,
): Promise<InspectedClaim | undefined> {
  const state = await readClaimState(dirs.dataDir, claim);
  if (state === undefined) return undefined;
  const bases = Object.keys(state.requests).sort();
  const files = bases.flatMap((base) => state.layouts.map((layout) => inspectFile(driver, dirs, state, base, layout)));
  const { podClaimName, podUid } = state;
  return {
    claim: state.claim,
    ...(podClaimName === undefined ? {} : { podClaimName }),
    ...(podUid === undefined ? {} : { podUid }),
    requests: Object.entries(state.requests).map(([base, { name, generation, devices }]) => ({
      ...{ name, base, generation, devices },
    })),
    files: await Promise.all(files),
  };
}

async function inspectFile(
  driver: string,
  dirs: HostDirs,
  state: ClaimState,
  request: string,
  name: LayoutName,
): Promise<InspectedFile> {
  const layout = layouts[name];
  const content = contentOf(state, request, driver);
  const file = layout.hostFile(dirs, placeOf(content));
  const wanted = layout.encode(content)?.trimEnd();
  const found = (await readFileIfThere(file))?.trimEnd();
  const absent = wanted === undefined ? 'pending' : 'missing';
  const verdict = found === undefined ? absent : found === wanted ? 'current' : 'different';
  return { request, layout: name, path: hostPath(file), state: verdict };
}
