import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { toolSources } from '../../../e2e/node/tools.ts';
import { packageFolder } from '../../../scripts/packages/debian-packages.ts';

/** Adds programs that do nothing. */
export function addPrograms(folder: string, names: readonly string[]): void {
  mkdirSync(folder, { recursive: true });
  for (const name of names) writeFileSync(join(folder, name), '#!/bin/sh\n', { mode: 0o755 });
}

/** Fills a cache with programs of a node that do nothing. */
export function fillCache(cacheDir: string): void {
  for (const source of Object.values(toolSources(process.env)))
    addPrograms(join(packageFolder(cacheDir, source.package), source.packageDir), source.programs);
  addPrograms(join(cacheDir, 'debian/bin'), ['ip']);
}
