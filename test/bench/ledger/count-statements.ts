import { DatabaseSync, type StatementSync } from 'node:sqlite';
import type { Counter } from './counted.ts';

/** Counts the statements that this process prepares and runs from now on, until disposed. The store runs all by `all`. */
export function countStatements(count: (what: Counter) => void): Disposable {
  const prepare = DatabaseSync.prototype.prepare;
  DatabaseSync.prototype.prepare = function (...args) {
    const statement: StatementSync = prepare.apply(this, args);
    const what = args[0] === 'COMMIT' ? 'transactions' : 'statements';
    const all = statement.all.bind(statement);
    statement.all = ((...values: Parameters<typeof all>) => {
      count(what);
      return all(...values);
    }) as typeof all;
    return statement;
  };
  return {
    [Symbol.dispose]() {
      DatabaseSync.prototype.prepare = prepare;
    },
  };
}
