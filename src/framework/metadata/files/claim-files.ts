import { basename, dirname, join, normalize } from 'node:path';
import type { ClaimIdentity } from '../document/document.ts';
import { type HostDirs, type LayoutName, placeOf, type SharedFile } from '../layouts/layout.ts';
import { attributesFilePrefix } from '../layouts/layout-attributes-json.ts';
import { claimDirectory, metadataDirName } from '../layouts/layout-v1.ts';
import { layouts } from '../layouts/layouts.ts';
import { claimDirName } from '../layouts/paths.ts';
import { type ClaimState, contentOf, requestOf } from './claim-state.ts';
import type { ClaimStates } from './claim-states.ts';
import type { HeldDirectories } from './held-directories.ts';
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
  readonly #states: Pick<ClaimStates, 'readIn' | 'remove'>;
  readonly #later: Later | undefined;

  constructor(options: {
    driver: string;
    dirs: HostDirs;
    states: Pick<ClaimStates, 'readIn' | 'remove'>;
    later: Later | undefined;
  }) {
    this.#driver = options.driver;
    this.#dirs = options.dirs;
    this.#states = options.states;
    this.#later = options.later;
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
  async layDown(state: ClaimState, base: string, held: HeldDirectories): Promise<boolean> {
    const content = contentOf(state, base, this.#driver);
    let isWritten = false;
    for (const [layout, file] of this.#files(state, base)) {
      const text = layouts[layout].encode(content) ?? (requestOf(state, base).isGated ? '' : undefined);
      if (text === undefined) await removeFile(file, held);
      else if (await putFile(file, text, held)) isWritten = true;
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

  /** Whether a path is a file of a prepared claim whose content comes with an update. */
  isContentFile(claim: Pick<ClaimIdentity, 'namespace' | 'name'>, path: string): boolean {
    if (path.startsWith(`${hostPath(claimDirectory(this.#dirs.dataDir, claim))}/`)) return true;
    if (dirname(dirname(path)) !== normalize(this.#dirs.downwardApiDir)) return false;
    const file = basename(path);
    // Request names have no dots, claim names may.
    const isNamed = file.startsWith(`${claim.name}.`) && /^[^.]+\.json$/.test(file.slice(claim.name.length + 1));
    return isNamed && this.#isPodDir(claim, basename(dirname(path)));
  }

  /** Claims of the same name in two namespaces have their files in different pod directories. */
  #isPodDir(claim: Pick<ClaimIdentity, 'namespace' | 'name'>, dir: string): boolean {
    try {
      return this.#states.readIn(claimDirName(claim))?.podUid === dir;
    } catch {
      // An unreadable record must not let a container start.
      return true;
    }
  }

  /** Whether a path could be such a file, of any claim. */
  isContentPlace(path: string): boolean {
    if (path.startsWith(`${hostPath({ base: this.#dirs.dataDir, parts: [metadataDirName] })}/`)) return true;
    return dirname(dirname(path)) === normalize(this.#dirs.downwardApiDir) && path.endsWith('.json');
  }

  /** Removes all files of a claim, the state last: what a crash leaves can still be found. */
  async remove(state: ClaimState, held: HeldDirectories): Promise<void> {
    const claimDir = hostPath(claimDirectory(this.#dirs.dataDir, state.claim));
    for (const base of Object.keys(state.requests)) {
      for (const [, file] of this.#files(state, base)) {
        // Files in the claim's own directory are removed with it.
        if (hostPath(file).startsWith(`${claimDir}/`)) continue;
        await this.removeShared(file, held);
      }
    }
    await this.removeClaimDir(state.claim, held);
  }

  /** Removes the claim's own directory, and then its record. */
  async removeClaimDir(claim: ClaimIdentity, held: HeldDirectories): Promise<void> {
    const dir = claimDirectory(this.#dirs.dataDir, claim);
    await (this.#later === undefined ? removeTree(dir, held) : takeTreeAway(dir, this.#later, held));
    this.#states.remove(claim);
  }

  /** Removes a claim's files outside its own directory when there is no state that names them. */
  async removeStrays(claim: ClaimIdentity): Promise<void> {
    const { attributesDir, downwardApiDir } = this.#dirs;
    const prefix = attributesFilePrefix(this.#driver, claim.uid);
    for (const name of await listDir(attributesDir)) {
      if (name.startsWith(prefix)) await removeFile({ base: attributesDir, parts: [name] });
    }
    for (const pod of await listSubdirectories({ base: downwardApiDir, parts: [] })) {
      for (const name of await listDir(join(downwardApiDir, pod))) {
        if (!name.startsWith(`${claim.name}.`) || !name.endsWith('.json')) continue;
        const file: HostFile = { base: downwardApiDir, parts: [pod, name] };
        const text = await readFileIfThere(file);
        const isOurs = [claim.uid, this.#driver].every((part) => text?.includes(JSON.stringify(part)));
        if (!isOurs) continue;
        await this.removeShared(file);
      }
    }
  }

  /** Files of the driver's claims in directories that are not its own, in all layouts. @throws MetadataError `metadata-io` */
  async listShared(): Promise<SharedFile[]> {
    const found: SharedFile[] = [];
    for (const layout of Object.values(layouts)) {
      found.push(...((await layout.listFiles?.(this.#dirs, this.#driver)) ?? []));
    }
    return found;
  }

  /** Removes a file, and the directory of its pod if that is empty then. @throws MetadataError `metadata-io` */
  async removeShared({ base, parts }: HostFile, held?: HeldDirectories): Promise<void> {
    await removeFile({ base, parts }, held);
    if (parts.length > 1) await removeEmptyDir({ base, parts: parts.slice(0, -1) }, held);
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
