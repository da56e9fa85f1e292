import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import type { Counter } from './counted.ts';

/** Synchronous calls of `node:fs`. `closeSync` and `fchmodSync` are left out: each belongs to an open. */
const calls: Readonly<Record<string, Counter>> = {
  openSync: 'filesOpened',
  readFileSync: 'filesRead',
  readSync: 'filesRead',
  writeFileSync: 'filesWritten',
  writeSync: 'filesWritten',
  renameSync: 'filesRenamed',
  unlinkSync: 'filesRemoved',
  rmSync: 'filesRemoved',
  rmdirSync: 'filesRemoved',
  mkdirSync: 'directoriesMade',
  existsSync: 'filesLookedAt',
  fstatSync: 'filesLookedAt',
  lstatSync: 'filesLookedAt',
  readdirSync: 'filesLookedAt',
  statSync: 'filesLookedAt',
};
/** Each runs in libuv's threads, as do those with a callback that the driver uses. */
const promised = ['access', 'lstat', 'mkdir', 'open', 'readFile', 'readdir', 'rename', 'rm', 'stat', 'writeFile'];

type Functions = Record<string, (...args: unknown[]) => unknown>;

/** Counts the calls of `node:fs` that this process makes from now on, until disposed. */
export function countFiles(count: (what: Counter) => void): Disposable {
  const stack = new DisposableStack();
  const replace = (functions: Functions, name: string, what: Counter) => {
    const original = functions[name]!;
    functions[name] = (...args) => {
      count(what);
      return original.apply(functions, args);
    };
    stack.defer(() => {
      functions[name] = original;
    });
  };
  stack.defer(syncBuiltinESMExports);
  for (const [name, what] of Object.entries(calls)) replace(fs as unknown as Functions, name, what);
  for (const name of ['write', 'close']) replace(fs as unknown as Functions, name, 'threadTrips');
  for (const name of promised) replace(fs.promises as unknown as Functions, name, 'threadTrips');
  syncBuiltinESMExports();
  return stack;
}
