import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Machine } from './machine.ts';
import { renderBounds, renderMachine, renderRows, renderTable } from './render.ts';
import type { BenchResult } from './result.ts';

/** The measurements of a run. */
export interface Report {
  machine: Machine;
  /** RFC 3339. */
  finished: string;
  results: BenchResult[];
}

/** Bounds of one bench in its last run, as `bounds.json` has them. */
interface Recorded extends Pick<BenchResult, 'name' | 'bounds'> {
  finished: string;
}

/**
 * Writes the figures of a run into RESULTS.md, between the marks `<!-- bench NAME -->` and `<!-- end -->`. Text outside the
 * marks is kept, and so are the figures of a bench that was not run.
 * @param folder with `RESULTS.md` and `bounds.json`
 */
export function writeDocs(folder: string, { machine, finished, results }: Report): void {
  const path = join(folder, 'RESULTS.md');
  for (const { name, about, rows, tables = [], notes = [] } of results) {
    const when = `Measured on ${finished.slice(0, 10)}: ${renderMachine(machine)}.`;
    const others = tables.map(({ head, lines }) => renderTable(head, lines));
    writePart(path, name, [about, renderRows(rows), ...others, when, ...notes].join('\n\n'));
  }
  const bounds = record(join(folder, 'bounds.json'), finished, results).flatMap((each) => each.bounds);
  writePart(path, 'bounds', renderBounds(bounds));
}

/** Replaces one part of a page, between its marks. @throws Error if the page has no such part */
export function writePart(path: string, name: string, content: string): void {
  const page = readFileSync(path, 'utf8');
  const start = `<!-- bench ${name} -->`;
  const from = page.indexOf(start);
  const to = page.indexOf('<!-- end -->', from);
  if (from < 0 || to < 0) throw new Error(`${path} has no part ${start}`);
  writeFileSync(path, `${page.slice(0, from)}${start}\n${content}\n${page.slice(to)}`);
}

/** Merges the bounds of a run with the last ones of the other benches. @returns all of them */
function record(path: string, finished: string, results: readonly BenchResult[]): Recorded[] {
  const before = existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as Recorded[]) : [];
  const now = results.map(({ name, bounds }): Recorded => ({ name, finished, bounds }));
  const kept = before.map((each) => now.find(({ name }) => name === each.name) ?? each);
  const all = [...kept, ...now.filter(({ name }) => !kept.some((each) => each.name === name))];
  writeFileSync(path, `${JSON.stringify(all, undefined, 2)}\n`);
  return all;
}
