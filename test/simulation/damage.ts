import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { directoriesOf } from './instance.ts';
import type { Damage } from './plan.ts';
import type { Node } from './world.ts';

const how: Record<Damage['how'], (text: string) => string | undefined> = {
  empty: () => '',
  torn: (text) => text.slice(0, text.length / 2),
  newer: (text) => text.replace('netdra-gate 1', 'netdra-gate 2').replaceAll('v1alpha1', 'v9'),
  removed: () => undefined,
};

/** Damages a file of one claim, as an administrator, a full disk or a newer version may leave it. */
export function damage({ directories, simulator, checks }: Node, fault: Damage): void {
  const { dataDir, cdiDir } = directoriesOf(directories);
  const [dir, name] = {
    gate: [join(dataDir, 'dra-device-metadata'), /\/gate$/] as const,
    metadata: [join(dataDir, 'dra-device-metadata'), /\/metadata\.json$/] as const,
    'CDI spec': [cdiDir, /_metadata_.*\.json$/] as const,
  }[fault.of];
  const change = how[fault.how];
  const path = filesOf(dir).find((each) => name.test(each));
  if (path === undefined) return;
  if (fault.of !== 'CDI spec') checks.damaged();
  simulator.trace('disk', `${path} is ${fault.how}`);
  const text = change(readFileSync(path, 'utf8'));
  if (text === undefined) rmSync(path);
  else writeFileSync(path, text);
}

function filesOf(dir: string): string[] {
  if (!existsSync(dir)) return [];
  return readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name);
    return entry.isDirectory() ? filesOf(path) : [path];
  });
}
