import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** What CDI devices change in a container. */
export interface ContainerEdits {
  mounts: { hostPath: string; containerPath: string; options: string[] }[];
  hooks: { path: string; args: string[] }[];
  env: string[];
  deviceNodes: { path: string }[];
}

interface CdiSpec {
  kind: string;
  devices: { name: string; containerEdits: Partial<ContainerEdits> }[];
}

/** A spec that is not valid does not affect the others. */
function specIn(text: string): CdiSpec | undefined {
  try {
    return JSON.parse(text) as CdiSpec;
  } catch {
    return undefined;
  }
}

/** Resolves CDI devices like a runtime: from the current files. @throws Error `unresolvable CDI devices` */
export function readCdi(dir: string, ids: readonly string[]): ContainerEdits {
  const files = existsSync(dir)
    ? readdirSync(dir).filter((file) => file.endsWith('.json') && !file.startsWith('.'))
    : [];
  const specs = files.flatMap((file) => specIn(readFileSync(join(dir, file), 'utf8')) ?? []);
  const devices = new Map(
    specs.flatMap(({ kind, devices }) =>
      devices.map(({ name, containerEdits }) => [`${kind}=${name}`, containerEdits]),
    ),
  );
  // A device that is named twice is taken once.
  const found = [...new Set(ids)].map((id) => {
    const edits = devices.get(id);
    if (edits === undefined) throw new Error(`unresolvable CDI devices ${id}`);
    return edits;
  });
  return {
    mounts: found.flatMap(({ mounts = [] }) => mounts),
    hooks: found.flatMap(({ hooks = [] }) => hooks),
    env: found.flatMap(({ env = [] }) => env),
    deviceNodes: found.flatMap(({ deviceNodes = [] }) => deviceNodes),
  };
}
