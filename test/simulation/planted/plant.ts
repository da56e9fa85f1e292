import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { fileURLToPath } from 'node:url';

/** A bug that is inserted into the code while it is loaded. */
export interface PlantedBug {
  name: string;
  /** The defect that it reintroduces. */
  what: string;
  changes: readonly SourceChange[];
}

export interface SourceChange {
  /** Path from the root of the project. */
  file: string;
  /** Occurs exactly once. */
  replace: string;
  by: string;
}

const root = new URL('../../../', import.meta.url).href;
const parameter = 'planted';

/**
 * Loads another copy of a module, and of all project modules that it needs, with a bug in it. Modules outside the project
 * are shared.
 * @param module path from the root of the project
 * @throws Error if the code that a change replaces does not exist, or occurs more than once
 */
export async function loadPlanted(module: string, bug: PlantedBug): Promise<unknown> {
  for (const change of bug.changes) applyTo(readFileSync(fileURLToPath(root + change.file), 'utf8'), bug, change);
  const suffix = `?${parameter}=${bug.name}`;
  const hooks = registerHooks({
    resolve(specifier, context, next) {
      const resolved = next(specifier, context);
      const isOurs = resolved.url.startsWith(root) && !resolved.url.includes('/node_modules/');
      if (!isOurs || context.parentURL?.endsWith(suffix) !== true || resolved.url.endsWith('.json')) return resolved;
      return { ...resolved, url: resolved.url + suffix };
    },
    load(url, context, next) {
      const loaded = next(url, context);
      if (!url.endsWith(suffix)) return loaded;
      const file = url.slice(root.length, -suffix.length);
      const source = bug.changes
        .filter((change) => change.file === file)
        .reduce((text, change) => applyTo(text, bug, change), String(loaded.source));
      return { ...loaded, source };
    },
  });
  try {
    return await import(root + module + suffix);
  } finally {
    hooks.deregister();
  }
}

function applyTo(source: string, { name }: PlantedBug, { file, replace, by }: SourceChange): string {
  const parts = source.split(replace);
  if (parts.length !== 2) {
    throw new Error(`planted bug ${name}: ${file} has the code that it changes ${parts.length - 1} times, not once`);
  }
  return parts.join(by);
}
