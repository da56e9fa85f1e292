/**
 * Loaded into the driver's process before the driver (`node --import`): intercepts every call by which the driver
 * changes the host or its own state, and ends the process right before the requested one. The calls are derived from
 * the code that makes them: the prototypes of the netlink connection and of SQLite, Node.js' own functions that write
 * files and start programs. So a new change of state is a new point, without a list to maintain.
 *
 * NETDRA_FAULTS_ARMED  path of a file: points are counted only while it exists
 * NETDRA_FAULTS_LOG    path of a file to which each point is appended, one per line
 * NETDRA_FAULTS_KILL   number of the point before which the process ends, from 1; absent: never
 */
import childProcess from 'node:child_process';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { basename } from 'node:path';
import { DatabaseSync, StatementSync } from 'node:sqlite';
import { RtnlConnection } from '../../../src/node/netlink/index.ts';

const { existsSync, writeSync } = fs;
const armedPath = process.env.NETDRA_FAULTS_ARMED ?? '';
const log = fs.openSync(process.env.NETDRA_FAULTS_LOG ?? '', 'a');
const killAt = Number(process.env.NETDRA_FAULTS_KILL ?? Number.NaN);
let reached = 0;

function point(name: string): void {
  if (!existsSync(armedPath)) return;
  reached += 1;
  // Not appendFileSync, which uses functions that have points themselves.
  writeSync(log, `${name}\n`);
  if (reached === killAt) process.kill(process.pid, 'SIGKILL');
}

// biome-ignore lint/suspicious/noExplicitAny: any function of any object
type AnyFunction = (this: any, ...args: any[]) => any;

/** Puts a point before each call of these functions. */
function instrument(
  target: object,
  names: string[],
  describe: (self: unknown, name: string, args: unknown[]) => string | undefined,
) {
  const functions = target as Record<string, AnyFunction>;
  for (const name of names) {
    const original = functions[name];
    if (original === undefined) throw new Error(`there is no ${name} to put a point before`);
    functions[name] = function (...args) {
      const description = describe(this, name, args);
      if (description !== undefined) point(description);
      return original.apply(this, args);
    };
  }
}

const namesOf = (prototype: object, pattern: RegExp) =>
  Object.getOwnPropertyNames(prototype).filter((name) => pattern.test(name));

/** Parts in angle brackets differ between runs. */
const pathName = (path: unknown) => basename(String(path)).replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, '<uid>');

instrument(
  RtnlConnection.prototype,
  namesOf(RtnlConnection.prototype, /^(set|add|create|delete|remove)/),
  (_, name) => `netlink ${name}`,
);

const isChange = (sql: string) => /^\s*(INSERT|UPDATE|DELETE|REPLACE|COMMIT)/i.test(sql);
const firstWords = (sql: string) => sql.trim().split(/\s+/).slice(0, 3).join(' ');
instrument(DatabaseSync.prototype, ['exec'], (_, __, [sql]) =>
  isChange(String(sql)) ? `store ${firstWords(String(sql))}` : undefined,
);
instrument(StatementSync.prototype, ['run'], (self) => {
  const { sourceSQL } = self as StatementSync;
  return isChange(sourceSQL) ? `store ${firstWords(sourceSQL)}` : undefined;
});

const writers = ['writeFile', 'appendFile', 'rename', 'unlink', 'rm', 'rmdir', 'mkdir', 'symlink', 'link', 'truncate'];
instrument(fs.promises, writers, (_, name, [path]) => `file ${name} ${pathName(path)}`);
instrument(
  fs,
  writers.map((name) => `${name}Sync`),
  (_, name, [path]) => `file ${name} ${pathName(path)}`,
);
// Lower descriptors are the standard streams: writing the log is not a change.
instrument(fs, ['writeSync'], (_, __, [descriptor]) => (Number(descriptor) > 2 ? 'file write' : undefined));
const nullFile = await fs.promises.open('/dev/null');
instrument(
  Object.getPrototypeOf(nullFile),
  ['write', 'writeFile', 'truncate', 'sync', 'datasync'],
  (_, name) => `file handle ${name}`,
);
await nullFile.close();
instrument(childProcess, ['spawn'], (_, __, [program]) => `program ${basename(String(program))}`);
syncBuiltinESMExports();
