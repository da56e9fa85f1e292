import { join } from 'node:path';
import { defined } from '../../../lib/defined.ts';
import type { ClaimIdentity } from '../document/document.ts';
import { gateHook } from '../gate/gate.ts';
import { type HostDirs, type LayoutName, placeOf } from '../layouts/layout.ts';
import { attributesFilePrefix } from '../layouts/layout-attributes-json.ts';
import { claimUidOf } from '../layouts/layout-downward-api.ts';
import { claimDirectory } from '../layouts/layout-v1.ts';
import { layouts } from '../layouts/layouts.ts';
import { ClaimSpecs, type ContainerEdits, metadataClass } from './cdi.ts';
import type { ClaimMetadataOptions } from './claim-dirs.ts';
import { type ClaimState, contentOf, requestOf } from './claim-state.ts';
import { containerFilesOf, encodeContainerFile } from './container-files.ts';
import {
  type HostFile,
  hostPath,
  listDir,
  listSubdirectories,
  readFileIfThere,
  removeEmptyDir,
  removeFile,
  removeTree,
  takeTreeAway,
} from './host-file.ts';
import { putFile, removeMountedFile, withdrawFile } from './mounted-file.ts';
import { removeUnknownIn, uidAfter } from './unknown-files.ts';

export type ClaimFilesOptions = Pick<ClaimMetadataOptions, 'driver' | 'cdiDir' | 'gate' | 'later' | 'marker'>;

/**
 * Metadata files and CDI specs of claims on the host. The gate files are in `ClaimGate`. All content follows from the claims'
 * states.
 */
export class ClaimFiles {
  readonly #options: ClaimFilesOptions;
  readonly #dirs: HostDirs;
  readonly #cdi: ClaimSpecs;

  constructor(options: ClaimFilesOptions, dirs: HostDirs) {
    this.#options = options;
    this.#dirs = dirs;
    this.#cdi = new ClaimSpecs({ dir: options.cdiDir, driver: options.driver, class: metadataClass });
  }

  /**
   * Checks a state before it is written. @throws MetadataError `metadata-name-invalid` if a layout cannot name the claim's
   * files
   */
  check(state: ClaimState): void {
    for (const base of Object.keys(state.requests)) this.#files(state, base);
    containerFilesOf(state, this.#dirs, this.#options.driver);
  }

  /**
   * Writes the CDI specs of requests whose containers wait at the gate. Must be called before {@link writeRequest}, which
   * leaves the files of such requests blank until they have content: without the hook, containers would start with blank
   * files.
   */
  writeHooks(state: ClaimState): void {
    this.#writeSpecs(state, true);
  }

  /**
   * Returns whether the spec with the gate's hook is missing and cannot be written again, since this driver has no gate.
   * `false` for a claim without layouts, whose spec has no files to mount.
   */
  isHookLost(state: ClaimState): boolean {
    if (this.#options.gate !== undefined || state.layouts.length === 0) return false;
    const gated = Object.entries(state.requests).filter(([, { isGated }]) => isGated);
    return gated.some(([base]) => !this.#cdi.has(state.claim.uid, base));
  }

  /** Writes files, and the CDI specs without the hook. Call it after the state is recorded. */
  writeFiles(state: ClaimState): void {
    for (const base of Object.keys(state.requests)) this.writeRequest(state, base);
    this.#writeSpecs(state, false);
  }

  /** Returns the paths of a request's files on the host. */
  pathsOf(state: ClaimState, base: string): string[] {
    return this.#files(state, base).map(([, file]) => hostPath(file));
  }

  /** Returns the CDI device id of each request that has a spec. */
  idsOf(state: ClaimState, bases: readonly string[]): Map<string, string> {
    const withSpec = bases.filter((base) => this.#containerEdits(state, base) !== undefined);
    return new Map(withSpec.map((base) => [base, this.#cdi.deviceId(state.claim.uid, base)]));
  }

  /**
   * Makes the files of a request match the state. Without content, they are blank if containers wait at the gate, and otherwise
   * withdrawn. Does not write files that have the right content.
   * @returns whether a file was written
   */
  writeRequest(state: ClaimState, base: string): boolean {
    const content = contentOf(state, base, this.#options.driver);
    let isWritten = false;
    for (const [layout, file] of this.#files(state, base)) {
      const text = layouts[layout].encode(content) ?? (requestOf(state, base).isGated ? '' : undefined);
      if (text === undefined) withdrawFile(file);
      else if (putFile(file, text)) isWritten = true;
    }
    for (const shared of containerFilesOf(state, this.#dirs, this.#options.driver)) {
      if (!shared.requests.includes(base)) continue;
      const text = encodeContainerFile(state, shared);
      if (text === undefined) withdrawFile(shared.file);
      else putFile(shared.file, text);
    }
    return isWritten;
  }

  /**
   * Removes all files of a claim. The caller removes the state afterwards: if a crash interrupts this, the state shows which
   * files to remove.
   */
  remove(state: ClaimState): void {
    const claimDir = hostPath(claimDirectory(this.#dirs.dataDir, state.claim));
    this.#cdi.remove(state.claim.uid, Object.keys(state.requests));
    for (const base of Object.keys(state.requests)) {
      for (const [, file] of this.#files(state, base)) {
        // Files in the claim's own directory are removed with it.
        if (!hostPath(file).startsWith(`${claimDir}/`)) removeShared(file);
      }
    }
    this.removeClaimDir(state.claim);
  }

  /** Removes the files that a claim no longer has after it is prepared again: those of pods that have ended. */
  removeOver(before: ClaimState, next: ClaimState): void {
    for (const base of Object.keys(before.requests)) {
      const stay = this.pathsOf(next, base);
      for (const [, file] of this.#files(before, base)) if (!stay.includes(hostPath(file))) removeShared(file);
    }
  }

  /** Removes the claim's own directory. */
  removeClaimDir(claim: ClaimIdentity): void {
    const dir = claimDirectory(this.#dirs.dataDir, claim);
    const { later } = this.#options;
    if (later === undefined) removeTree(dir);
    else takeTreeAway(dir, later);
  }

  /** Removes a claim's files outside its own directory if there is no state that names them. */
  removeStrays(claim: ClaimIdentity): void {
    const { attributesDir, downwardApiDir } = this.#dirs;
    this.#cdi.removeClaims([claim.uid]);
    const prefix = attributesFilePrefix(this.#options.driver, claim.uid);
    for (const name of listDir(attributesDir)) {
      if (name.startsWith(prefix)) removeFile({ base: attributesDir, parts: [name] });
    }
    for (const pod of listSubdirectories({ base: downwardApiDir, parts: [] })) {
      for (const name of listDir(join(downwardApiDir, pod))) {
        if (!name.startsWith(`${claim.name}.`) || !name.endsWith('.json')) continue;
        const file: HostFile = { base: downwardApiDir, parts: [pod, name] };
        const text = readFileIfThere(file);
        const isOurs = [claim.uid, this.#options.driver].every((part) => text?.includes(JSON.stringify(part)));
        if (isOurs) removeShared(file);
      }
    }
  }

  /**
   * Removes CDI specs, and files outside of claims' own directories, that belong to unknown claims. A blank or withdrawn file
   * in the directory of a pod stays: its content does not show its claim.
   * @param known returns the UIDs of existing claims; called after the files are listed
   * @returns paths of removed files
   */
  removeUnknown(known: () => ReadonlySet<string>): string[] {
    const { attributesDir, downwardApiDir } = this.#dirs;
    const { driver } = this.#options;
    const removed = [
      ...this.#cdi.removeUnknown(known),
      ...removeUnknownIn({ base: attributesDir, parts: [] }, (name) => uidAfter(`${driver}-`, name), known),
    ];
    for (const pod of listSubdirectories({ base: downwardApiDir, parts: [] })) {
      const dir: HostFile = { base: downwardApiDir, parts: [pod] };
      const uidOf = (name: string) => claimUidOf(readFileIfThere({ ...dir, parts: [pod, name] }), driver);
      const files = removeUnknownIn(dir, uidOf, known);
      if (files.length > 0) removeEmptyDir(dir);
      removed.push(...files);
    }
    return removed;
  }

  #writeSpecs(state: ClaimState, gated: boolean): void {
    for (const base of Object.keys(state.requests)) {
      if ((requestOf(state, base).isGated === true) !== gated) continue;
      // The claim's containers keep waiting until the claim is prepared without the gate.
      if (gated && this.#options.gate === undefined) continue;
      const { uid } = state.claim;
      // The kubelet makes no call for a pod that takes over a prepared claim: its containers use the existing CDI device.
      const edits = this.#containerEdits(state, base) ?? (this.#cdi.has(uid, base) ? this.#mark(state) : undefined);
      if (edits !== undefined) this.#cdi.write(uid, base, edits);
    }
  }

  /** Returns edits with only the variable that names the claim: CDI refuses a device without edits. */
  #mark({ claim }: ClaimState): ContainerEdits {
    const { marker = 'DRA_CLAIM_' } = this.#options;
    return { env: [`${variableOf(marker, claim)}${claim.namespace}/${claim.name}`] };
  }

  /** Returns the edits of a request's CDI device; `undefined` if containers get nothing with it. */
  #containerEdits(state: ClaimState, base: string): ContainerEdits | undefined {
    const { gate, marker } = this.#options;
    const place = this.#placeOf(state, base);
    const mounts = state.layouts.flatMap((layout) =>
      layouts[layout].containerPaths(place).map((containerPath) => ({
        hostPath: hostPath(layouts[layout].hostFile(this.#dirs, place)),
        containerPath,
        options: ['ro', 'bind'],
      })),
    );
    const isGated = gate !== undefined && requestOf(state, base).isGated === true;
    const hasMounts = mounts.length > 0;
    const isMarked = hasMounts && !isGated && marker !== undefined;
    const edits: ContainerEdits = defined({
      mounts: hasMounts ? mounts : undefined,
      hooks: isGated ? [gateHook(gate, this.#dirs.dataDir, state.claim)] : undefined,
      env: isMarked ? this.#mark(state).env : undefined,
    });
    return Object.keys(edits).length === 0 ? undefined : edits;
  }

  /** Returns the files of a request: one for each of its layouts, or for each pod in a layout with directories of pods. */
  #files(state: ClaimState, base: string): [LayoutName, HostFile][] {
    const place = this.#placeOf(state, base);
    const places = [place, ...(state.otherPodUids ?? []).map((podUid) => ({ ...place, podUid }))];
    return state.layouts.flatMap((layout) => {
      const files = places.map((each) => layouts[layout].hostFile(this.#dirs, each));
      const byPath = new Map(files.map((file) => [hostPath(file), file]));
      return [...byPath.values()].map((file): [LayoutName, HostFile] => [layout, file]);
    });
  }

  #placeOf(state: ClaimState, base: string) {
    return placeOf(contentOf(state, base, this.#options.driver));
  }
}

/** Returns a claim's environment variable in its containers, up to the value. */
export function variableOf(marker: string, { uid }: ClaimIdentity): string {
  return `${marker}${uid.replaceAll(/\W/g, '_')}=`;
}

/** Removes a file, and then the directory of its pod if it is empty. @throws MetadataError `metadata-io` */
function removeShared({ base, parts }: HostFile): void {
  removeMountedFile({ base, parts });
  if (parts.length > 1) removeEmptyDir({ base, parts: parts.slice(0, -1) });
}
