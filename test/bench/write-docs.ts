import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { drawChart } from './chart.ts';
import type { Machine } from './machine.ts';
import { renderBounds, renderMachine, renderRows } from './render.ts';
import type { BenchResult } from './result.ts';

/** What a run has measured. */
export interface Report {
  machine: Machine;
  /** RFC 3339. */
  finished: string;
  results: BenchResult[];
}

/**
 * Puts the figures of a run into docs/performance.md, between the marks `<!-- bench NAME -->` and `<!-- end -->`, and draws
 * its plots beside it. What stands around the marks stays, and so do the figures of a bench that was not run.
 * @param docsDir with `performance.md` and `performance/`
 */
export function writeDocs(docsDir: string, { machine, finished, results }: Report): void {
  const path = join(docsDir, 'performance.md');
  const plotDir = join(docsDir, 'performance');
  mkdirSync(plotDir, { recursive: true });
  let page = readFileSync(path, 'utf8');
  for (const { name, about, rows, plots = [], notes = [] } of results) {
    const images = plots.map((plot) => {
      writeFileSync(join(plotDir, `${plot.name}.svg`), drawChart(plot));
      return `![${plot.title}](performance/${plot.name}.svg)`;
    });
    page = replacePart(page, name, [about, renderRows(rows), ...notes, ...images].join('\n\n'));
  }
  const bounds = results.flatMap((result) => result.bounds);
  const ofRun = `Measured on ${finished.slice(0, 10)}: ${renderMachine(machine)}.`;
  page = replacePart(page, 'bounds', `${ofRun}\n\n${renderBounds(bounds)}`);
  writeFileSync(path, page);
}

/** @throws Error if the page has no such part */
function replacePart(page: string, name: string, content: string): string {
  const start = `<!-- bench ${name} -->`;
  const from = page.indexOf(start);
  const to = page.indexOf('<!-- end -->', from);
  if (from < 0 || to < 0) throw new Error(`docs/performance.md has no part ${start}`);
  return `${page.slice(0, from)}${start}\n${content}\n${page.slice(to)}`;
}
