/**
 * The cost of many nodes for the API server: runs the driver's own code of many nodes against the API server double,
 * in simulated time, and counts requests and bytes. docs/scale.md explains what it shows and what it cannot.
 *
 *   npm run scale -- [--nodes 200] [--vfs 64] [--for 5000] [--seed 1]
 *
 * --for     number of nodes for which the totals are computed
 * --seed    of the random waiting times
 */
import { parseArgs } from 'node:util';
import { type Outcome, playScenarios, scenarios } from '../test/scale/scenarios.ts';
import { seededRandom } from '../test/scale/seeded-random.ts';

const options = {
  nodes: { type: 'string', default: '200' },
  vfs: { type: 'string', default: '64' },
  for: { type: 'string', default: '5000' },
  seed: { type: 'string', default: '1' },
} as const;

function readArguments(): Record<keyof typeof options, number> {
  const { values } = parseArgs({ options });
  const wrong = Object.entries(values).find(([, text]) => !/^[1-9]\d{0,5}$/.test(text));
  if (wrong !== undefined) throw new Error(`--${wrong[0]} ${wrong[1]}: a number from 1 to 999999 is needed`);
  return { nodes: +values.nodes, vfs: +values.vfs, for: +values.for, seed: +values.seed };
}

const number = (value: number, digits = 0) =>
  value.toLocaleString('en', { maximumFractionDigits: digits, minimumFractionDigits: digits });

/** Columns as wide as their widest text; all except the first two are right-aligned. */
function printTable(rows: string[][]): void {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  for (const row of rows) {
    const cells = row.map((cell, column) =>
      column < 2 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
    );
    console.log(cells.join('  ').trimEnd());
  }
}

function toRows(
  { name, perNode, peakPerSecond, eventBytesPerNode, watchedBytesPerNode }: Outcome,
  scale: number,
  total: number,
): string[][] {
  const rows = [...perNode].map(([kind, { calls, receivedBytes, sentBytes }]) => [
    ...['', kind, number(calls, 1), number(receivedBytes), number(sentBytes), number(calls * total)],
    number(((receivedBytes + sentBytes) * total) / 1e6, 1),
  ]);
  for (const [what, bytes] of [
    ['events to its own watch', eventBytesPerNode],
    ['events to each who watches all', watchedBytesPerNode],
  ] as const) {
    if (bytes > 0) rows.push(['', what, '', '', number(bytes), '', number((bytes * total) / 1e6, 1)]);
  }
  rows.push(['', 'most requests in a second', '', '', '', number(peakPerSecond * scale), '']);
  return [[name, scenarios[name], '', '', '', '', ''], ...rows];
}

async function main(): Promise<void> {
  const { nodes, vfs, for: total, seed } = readArguments();
  console.log(
    `${nodes} nodes with ${vfs} VFs, played against the API server double; right of the bar for ${total} nodes\n`,
  );
  const outcomes = await playScenarios({ nodes, vfsPerNode: vfs, random: seededRandom(seed) });
  const head = ['', '', 'calls/node', 'bytes in/node', 'bytes out/node', `| calls`, 'MB'];
  printTable([head, ...outcomes.flatMap((outcome) => toRows(outcome, total / nodes, total))]);
}

await main().catch((error) => {
  console.error(`netdra: ${error.message}`);
  process.exitCode = 1;
});
