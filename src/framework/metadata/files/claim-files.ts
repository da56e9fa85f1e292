import { join } from 'node:path';
import type { ClaimIdentity } from '../document/document.ts';
import { type HostDirs, type LayoutName, placeOf } from '../layouts/layout.ts';
import { attributesFilePrefix } from '../layouts/layout-attributes-json.ts';
import { claimDirectory } from '../layouts/layout-v1.ts';
import { layouts } from '../layouts/layouts.ts';
import { type ClaimState, contentOf, requestOf } from './claim-state.ts';
import type { ClaimStates } from './claim-states.ts';
import {
  type HostFile,
  hostPath,
  type Later,
  listDir,
  listSubdirectories,
  putFile,
  readFileIfThere,
  removeEmptyDir,
  removeFile,
  removeTree,
  takeTreeAway,
} from './host-file.ts';

/** The files of claims on the host: written from a claim's state, in the layouts that the state names. */
export class ClaimFiles {
  readonly #driver: string;
  readonly #dirs: HostDirs;
  readonly #states: Pick<ClaimStates, 'remove'>;
  readonly #later: Later | undefined;

  constructor(driver: string, dirs: HostDirs, states: Pick<ClaimStates, 'remove'>, later: Later | undefined) {
    this.#driver = driver;
    this.#dirs = dirs;
    this.#states = states;
    this.#later = later;
  }

  /** @throws MetadataError `metadata-name-invalid` if the claim cannot have files in one of its layouts */
  check(state: ClaimState): void {
    for (const base of Object.keys(state.requests)) this.#files(state, base);
  }

  /**
   * Makes the files of a request match the state. Without content they are blank if containers wait at the gate, and
   * otherwise absent. Files that are already right are not touched.
   * @returns whether a file was written
   */
  layDown(state: ClaimState, base: string): boolean {
    const content = contentOf(state, base, this.#driver);
    let isWritten = false;
    for (const [layout, file] of this.#files(state, base)) {
      const text = layouts[layout].encode(content) ?? (requestOf(state, base).isGated ? '' : undefined);
      if (text === undefined) removeFile(file);
      else if (putFile(file, text)) isWritten = true;
    }
    return isWritten;
  }

  /** The bind mounts of a request, for CDI. */
  mounts(state: ClaimState, base: string) {
    const place = this.#placeOf(state, base);
    return state.layouts.flatMap((layout) =>
      layouts[layout].containerPaths(place).map((containerPath) => ({
        hostPath: hostPath(layouts[layout].hostFile(this.#dirs, place)),
        containerPath,
        options: ['ro', 'bind'],
      })),
    );
  }

  /** Removes all files of a claim, the state last: what a crash leaves can still be found. */
  remove(state: ClaimState): void {
    const claimDir = hostPath(claimDirectory(this.#dirs.dataDir, state.claim));
    for (const base of Object.keys(state.requests)) {
      for (const [, file] of this.#files(state, base)) {
        // Files in the claim's own directory are removed with it.
        if (!hostPath(file).startsWith(`${claimDir}/`)) removeShared(file);
      }
    }
    this.removeClaimDir(state.claim);
  }

  /** Removes the claim's own directory, and then its record. */
  removeClaimDir(claim: ClaimIdentity): void {
    const dir = claimDirectory(this.#dirs.dataDir, claim);
    if (this.#later === undefined) removeTree(dir);
    else takeTreeAway(dir, this.#later);
    this.#states.remove(claim);
  }

  /** Removes a claim's files outside its own directory when there is no state that names them. */
  removeStrays(claim: ClaimIdentity): void {
    const { attributesDir, downwardApiDir } = this.#dirs;
    const prefix = attributesFilePrefix(this.#driver, claim.uid);
    for (const name of listDir(attributesDir)) {
      if (name.startsWith(prefix)) removeFile({ base: attributesDir, parts: [name] });
    }
    for (const pod of listSubdirectories({ base: downwardApiDir, parts: [] })) {
      for (const name of listDir(join(downwardApiDir, pod))) {
        if (!name.startsWith(`${claim.name}.`) || !name.endsWith('.json')) continue;
        const file: HostFile = { base: downwardApiDir, parts: [pod, name] };
        const text = readFileIfThere(file);
        const isOurs = [claim.uid, this.#driver].every((part) => text?.includes(JSON.stringify(part)));
        if (isOurs) removeShared(file);
      }
    }
  }

  /** The files of a request, one for each of its layouts. */
  #files(state: ClaimState, base: string): [LayoutName, HostFile][] {
    const place = this.#placeOf(state, base);
    return state.layouts.map((layout) => [layout, layouts[layout].hostFile(this.#dirs, place)]);
  }

  #placeOf(state: ClaimState, base: string) {
    return placeOf(contentOf(state, base, this.#driver));
  }
}

/** Removes a file, and the directory of its pod if that is empty then. @throws MetadataError `metadata-io` */
export function removeShared({ base, parts }: HostFile): void {
  removeFile({ base, parts });
  if (parts.length > 1) removeEmptyDir({ base, parts: parts.slice(0, -1) });
}
