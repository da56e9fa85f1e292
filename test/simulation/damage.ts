import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
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
  if (fault.of !== 'CDI spec') checks.damaged(relative(dir, path).split('/')[0] ?? '');
  simulator.trace('disk', `${path} is ${fault.how}`);
  const text = change(readFileSync(path, 'utf8'));
  if (text === undefined) rmSync(path);
  else writeFileSync(path, text);
}

/** SQLite does not sync each transaction: a power failure can undo the last ones, and nothing else of the store. */
export function loseLastClaim({ databases, directories, checks, simulator }: Node): void {
  const { database } = directoriesOf(directories);
  const store = databases.open(database);
  const [last] = store.prepare('SELECT uid, namespace, name FROM claims ORDER BY rowid DESC LIMIT 1').all();
  if (last !== undefined) {
    const { uid, namespace, name } = last as { uid: string; namespace: string; name: string };
    store.prepare('DELETE FROM devices WHERE claim_uid = ?').run(uid);
    store.prepare('DELETE FROM claims WHERE uid = ?').run(uid);
    store.prepare('DELETE FROM records WHERE dir = ?').run(`${namespace}_${name}`);
    for (const each of [checks.guarantees, checks.model]) each.claimDeleted(uid);
    simulator.trace('disk', `the store has lost ${name}`);
  }
  store.close();
}

function filesOf(dir: string): string[] {
  if (!existsSync(dir)) return [];
  return readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name);
    return entry.isDirectory() ? filesOf(path) : [path];
  });
}
