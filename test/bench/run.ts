/**
 * `npm run bench [-- --only NAME,NAME] [--against COMMIT] [--smoke] [--json FILE] [--write-docs]`: see README.md.
 * Exits with 0 whether the bounds are met or not; with 1 if something failed.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { Bench } from './bench.ts';
import { allBenches } from './benches/index.ts';
import { benchOptions } from './chosen-names.ts';
import { BenchDisk } from './disk.ts';
import { describeMachine } from './machine.ts';
import { renderBounds, renderMachine, renderResult } from './render.ts';
import type { BenchResult } from './result.ts';
import { makeShippedDriver } from './shipped-driver.ts';
import { type Report, writeDocs } from './write-docs.ts';

const { values } = parseArgs({ options: benchOptions });

const say = (text: string) => process.stdout.write(`${text}\n`);
const names = values.only?.split(',');
const unknown = names?.filter((name) => !allBenches.some((bench) => bench.name === name)) ?? [];
if (unknown.length > 0) {
  throw new Error(`no bench ${unknown.join(', ')}; there are ${allBenches.map(({ name }) => name).join(', ')}`);
}
const chosen: Bench[] = allBenches.filter(({ name }) => names?.includes(name) ?? true);
using disk = new BenchDisk();
const machine = { ...describeMachine(), disk: disk.description };
say(renderMachine(machine));
const workDir = disk.dir;
const imageDir = join(workDir, 'image');
await makeShippedDriver(imageDir);
const results: BenchResult[] = [];
for (const bench of chosen) {
  const startedAtMs = performance.now();
  const effort = values.smoke ? 'smoke' : 'full';
  const progress = (line: string) => process.stderr.write(`  ${line}\n`);
  const result = await bench.run({ effort, imageDir, workDir, against: values.against, progress });
  results.push(result);
  say(`\n${renderResult(result)}\n\n(${((performance.now() - startedAtMs) / 1_000).toFixed(0)} s)`);
}
const bounds = results.flatMap((result) => result.bounds);
say(`\n${renderBounds(bounds)}`);
const report: Report = { machine, finished: new Date().toISOString(), results };
if (values['write-docs']) writeDocs(import.meta.dirname, report);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(report, undefined, 2)}\n`);
