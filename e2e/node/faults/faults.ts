import { parseArgs } from 'node:util';
import { type Phase, phases, type Scenario, scenarios } from './lifecycle.ts';
import { formatFaults, runFaults } from './run-faults.ts';

/**
 * `node e2e/node/faults/faults.ts [--every N] [--scenario NAME] [--phase NAME] [--at N]`: see {@link runFaults}. Exits
 * with 1 if anything is lost, or no fault was injected.
 */
const { values } = parseArgs({
  options: {
    every: { type: 'string', default: '1' },
    scenario: { type: 'string' },
    phase: { type: 'string' },
    at: { type: 'string' },
  },
});

/** One of the known names, or all of them. */
function choose<Name extends string>(known: readonly Name[], name: string | undefined): readonly Name[] {
  if (name === undefined) return known;
  const found = known.find((each) => each === name);
  if (found === undefined) throw new Error(`${name} is none of ${known.join(', ')}`);
  return [found];
}

const rows = await runFaults({
  scenarios: choose<Scenario>(scenarios, values.scenario),
  phases: choose<Phase>(phases, values.phase),
  every: Number(values.every),
  ...(values.at === undefined ? {} : { at: Number(values.at) }),
  report: (line) => console.log(line),
});
console.log(formatFaults(rows));
const isShown = rows.some(({ injected }) => injected > 0);
if (!isShown || rows.some(({ lost }) => lost.length > 0)) process.exitCode = 1;
