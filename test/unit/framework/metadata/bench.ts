import { existsSync, linkSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import {
  ClaimMetadata,
  type ClaimMetadataOptions,
  type ContainerEdits,
  type LayoutName,
  layoutNames,
  layouts,
} from '../../../../src/framework/metadata/index.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
import { driver } from './samples.ts';

/** A node's directories, and drivers that use them. */
export class Bench implements Disposable {
  readonly #dir = tempDir();
  readonly path = this.#dir.path;
  readonly dataDir = join(this.path, 'data');
  readonly cdiDir = join(this.path, 'cdi');
  readonly attributesDir = join(this.path, 'attributes');
  readonly downwardApiDir = join(this.path, 'pods');

  /** A driver process: all that it remembers is in the directories. */
  start(
    more: Partial<Omit<ClaimMetadataOptions, 'layouts'>> & { layouts?: readonly LayoutName[] } = {},
  ): ClaimMetadata {
    const { dataDir, cdiDir, attributesDir, downwardApiDir } = this;
    const names = more.layouts ?? layoutNames;
    return new ClaimMetadata({
      enabled: true,
      driver,
      dataDir,
      cdiDir,
      attributesDir,
      downwardApiDir,
      now: () => new Date('2026-03-01T12:00:00.789Z'),
      ...more,
      layouts: names.map((name) => layouts[name]),
    });
  }

  /** All files below a directory, by their paths in it. */
  files(dir = this.path): string[] {
    if (!existsSync(dir)) return [];
    return readdirSync(dir, { withFileTypes: true, recursive: true })
      .filter((entry) => !entry.isDirectory())
      .map((entry) => join(entry.parentPath, entry.name).slice(dir.length + 1))
      .sort();
  }

  read(path: string): string {
    return readFileSync(join(this.path, path), 'utf8');
  }

  /** What the CDI specs of a claim change in a container. */
  edits(claimUid: string, ofDriver = driver): ContainerEdits[] {
    const specs = this.files(this.cdiDir).filter((name) => name.startsWith(`${ofDriver}_metadata_${claimUid}_`));
    return specs.map((name) => JSON.parse(this.read(`cdi/${name}`)).devices[0].containerEdits);
  }

  /** What the CDI specs of a claim mount, by path in the container. */
  mounts(claimUid: string, ofDriver = driver): Map<string, string> {
    const mounts = this.edits(claimUid, ofDriver).flatMap((edits) => edits.mounts ?? []);
    return new Map(mounts.map(({ containerPath, hostPath }) => [containerPath, hostPath]));
  }

  /**
   * A container's root with the mounts of a claim in it. A hard link stands for a bind mount: it is the same inode, and
   * stays that when the name on the host gets another one.
   * @returns where it is
   */
  enter(claimUid: string, name = 'container', ofDriver = driver): string {
    const root = join(this.path, name);
    for (const [containerPath, hostPath] of this.mounts(claimUid, ofDriver)) {
      mkdirSync(dirname(join(root, containerPath)), { recursive: true });
      linkSync(hostPath, join(root, containerPath));
    }
    return root;
  }

  [Symbol.dispose]() {
    this.#dir[Symbol.dispose]();
  }
}
