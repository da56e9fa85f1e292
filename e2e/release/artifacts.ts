import { hash } from 'node:crypto';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import type { Architecture } from '../../deploy/image/layout.ts';
import { buildConsumer } from '../../programs/build.ts';
import { run } from '../../scripts/packages/run.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import { encodeTar, readTarEntries } from '../node/tar.ts';
import { packageChart } from './chart.ts';
import { buildForeignTool, hostArchitecture } from './driver-image.ts';
import { fillReleaseFolder, sumsFile } from './folder.ts';

const repo = fileURLToPath(new URL('../..', import.meta.url));

export interface ReleaseParts {
  cacheDir: string;
  /** Folders with OCI layouts of the driver's image. */
  images: Partial<Record<Architecture, string>>;
  log?: (line: string) => void;
}

/** Paths of what a release publishes. */
export interface ReleaseFiles {
  /** OCI archives. */
  images: string[];
  chart: string;
  /** For `sha256sum --check` in the folder. */
  sums: string;
}

/**
 * Makes what a release publishes; the same sources and image give the same bytes.
 * @param out a new folder, or one with an earlier release, which is replaced at the end
 * @throws CommandError, PackageError; NetdraError `architecture-unknown`, `folder-not-empty`, `notes-missing`, `tool-missing`
 */
export function makeRelease(out: string, parts: ReleaseParts): ReleaseFiles {
  const { images, chart, sums } = fillReleaseFolder(out, (dir) => makeFiles(dir, parts));
  return { images: images.map((name) => join(out, name)), chart: join(out, chart), sums: join(out, sums) };
}

/** @returns the names in the folder */
function makeFiles(dir: string, { cacheDir, images, log = () => undefined }: ReleaseParts): ReleaseFiles {
  const { version } = JSON.parse(readFileSync(join(repo, 'package.json'), 'utf8')) as { version: string };
  const work = mkdtempSync(join(tmpdir(), 'netdra-release-'));
  try {
    const packed = packageChart(cacheDir, work, 'helm-4');
    const chart = basename(packed);
    const imageNames = Object.entries(images).map(([processor, layout]) => {
      const name = `netdra-image-${version}-${processor}.tar`;
      writeFileSync(join(dir, name), encodeTar(readTarEntries(layout)));
      return name;
    });
    writeFileSync(join(dir, chart), repackChart(packed, work));
    run('npm', ['pack', '--pack-destination', dir, '--cache', join(work, 'npm')], { cwd: repo });
    for (const processor of Object.keys(images) as Architecture[]) {
      const outDir = join(work, 'programs', processor);
      const isOwn = processor === hostArchitecture();
      const built = isOwn
        ? buildConsumer({ outDir, cacheDir, log })
        : buildForeignTool(cacheDir, outDir, processor, version);
      const tool = join(dir, `netdra-metadata-${version}-linux-${processor}`);
      cpSync(built, tool);
      chmodSync(tool, 0o755);
    }
    cpSync(join(repo, 'deploy/manifests/netdra.yaml'), join(dir, 'netdra.yaml'));
    writeFileSync(join(dir, `netdra-${version}.cdx.json`), billOfMaterials());
    writeFileSync(join(dir, 'NOTES.md'), notesOf(version));
    writeFileSync(join(dir, sumsFile), checksums(dir));
    return { images: imageNames, chart, sums: sumsFile };
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** A line for each file of a folder, in the form of `sha256sum`. */
function checksums(dir: string): string {
  const names = readdirSync(dir).sort();
  return names.map((name) => `${hash('sha256', readFileSync(join(dir, name)))}  ${name}\n`).join('');
}

/** The archive without the time at which Helm has packed each file. */
function repackChart(packed: string, work: string): Buffer {
  const unpacked = join(work, 'chart');
  mkdirSync(unpacked);
  run('tar', ['--extract', '--file', packed, '--directory', unpacked]);
  return gzipSync(encodeTar(readTarEntries(unpacked)), { level: 9 });
}

/** The npm packages of the driver with versions, hashes and licences, as CycloneDX, without what npm adds of this run: time, serial number, folder. */
function billOfMaterials(): string {
  const flags = ['--omit', 'dev', '--package-lock-only', '--sbom-format', 'cyclonedx'];
  const { serialNumber: _, metadata, ...rest } = JSON.parse(run('npm', ['sbom', ...flags], { cwd: repo }));
  const { timestamp: _time, component, ...more } = metadata;
  return `${JSON.stringify({ ...rest, metadata: { ...more, component: { ...component, name: 'netdra' } } }, null, 2)}\n`;
}

/** @throws NetdraError `notes-missing` */
function notesOf(version: string): string {
  const sections = readFileSync(join(repo, 'CHANGELOG.md'), 'utf8').split(/^(?=## )/m);
  const section = sections.find((text) => text.startsWith(`## ${version}`));
  if (section !== undefined) return section;
  throw new NetdraError('notes-missing', `CHANGELOG.md has no section "## ${version}"`, { hint: 'write it first' });
}
