import { parseArgs } from 'node:util';
import { runChurn } from './faults/run-churn.ts';

/**
 * `node e2e/node/churn.ts [--pods 200] [--rounds 3] [--vfs 64] [--parallel 16] [--restarts 6] [--seed N]`: see
 * {@link runChurn}. Exits with 1 if anything went wrong.
 */
const { values } = parseArgs({
  options: {
    pods: { type: 'string', default: '200' },
    rounds: { type: 'string', default: '3' },
    vfs: { type: 'string', default: '64' },
    parallel: { type: 'string', default: '16' },
    restarts: { type: 'string', default: '6' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
  },
});
console.log(
  Object.entries(values)
    .map(([name, value]) => `${name} ${value}`)
    .join(', '),
);
const problems = await runChurn({
  pods: Number(values.pods),
  rounds: Number(values.rounds),
  vfs: Number(values.vfs),
  parallel: Number(values.parallel),
  restarts: Number(values.restarts),
  seed: Number(values.seed),
  report: (line) => console.log(line),
});
console.log(problems.length === 0 ? 'nothing lost' : `${problems.length} problems`);
if (problems.length > 0) process.exitCode = 1;
