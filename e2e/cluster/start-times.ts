/**
 * How long pods take to run on a real cluster, in turns: without a claim, with a VF of the driver, and with links and
 * devices from Go programs; and the driver's CPU time. `npm run e2e:cluster -- --start-times` and these options.
 *
 *   --rounds 3           number of turns of each kind of pod
 *   --counts 1,10,30     number of pods at once
 *   --kinds NAME,NAME    of: none, netdra, link, go
 *   --write-docs         writes the tables into test/bench/RESULTS.md, where it has a place for the version of Kubernetes
 */
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { describeMachine } from '../../test/bench/machine.ts';
import { renderMachine } from '../../test/bench/render.ts';
import { writePart } from '../../test/bench/write-docs.ts';
import { readPrograms } from './programs.ts';
import { formatLatencies, formatTimes } from './start-times/report.ts';
import { type Kind, kinds, StartTimes } from './start-times/start-times.ts';

function readOptions() {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '3' },
      counts: { type: 'string', default: '1,10,30' },
      kinds: { type: 'string', default: Object.keys(kinds).join(',') },
      'write-docs': { type: 'boolean', default: false },
    },
  });
  const counts = values.counts.split(',').map(Number);
  const chosen = values.kinds.split(',').filter((each): each is Kind => each in kinds);
  const isRight = counts.every((each) => Number.isInteger(each) && each > 0) && Number(values.rounds) > 0;
  if (isRight && chosen.length === values.kinds.split(',').length) {
    return { rounds: Number(values.rounds), counts, kinds: chosen, writeDocs: values['write-docs'] };
  }
  throw new NetdraError('wrong-usage', `--rounds, --counts and --kinds: ${JSON.stringify(values)}`, {
    hint: `numbers from 1 on, and kinds of ${Object.keys(kinds).join(', ')}`,
  });
}

async function main(): Promise<void> {
  const options = readOptions();
  const programs = readPrograms(process.env);
  const machine = renderMachine(describeMachine());
  await using times = await StartTimes.open(programs, Math.max(...options.counts), options.kinds);
  const { kubernetesVersion, runtimeLabel } = programs;
  let [round, text] = [0, ''];
  for await (const batches of times.measure(options)) {
    round += 1;
    const about = [
      `Kubernetes ${kubernetesVersion}, ${runtimeLabel}; ${machine}. Each kind of pod in turns, ${round} rounds.`,
      `At rest the driver with its ${times.vfs} simulated VFs takes ${times.idleCpuMsPerSecond.toFixed(1)} ms of CPU a second, which is part of its figure.`,
    ];
    text = [about.join(' '), formatTimes(batches), formatLatencies(batches)].join('\n\n');
    // Printed each time: a long run may be interrupted.
    console.log(text);
  }
  if (options.writeDocs) {
    writePart(
      fileURLToPath(new URL('../../test/bench/RESULTS.md', import.meta.url)),
      `pods-${kubernetesVersion}`,
      text,
    );
  }
}

try {
  await main();
} catch (error) {
  console.error(`start times: ${explain(error)}`);
  process.exitCode = 1;
}
