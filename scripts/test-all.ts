/**
 * Runs all tests and prints a table of their parts: `node scripts/test-all.ts`. A part that cannot run on this machine
 * is listed with the reason; if `CI` is set, that fails the run. Arguments are passed to vitest, which then selects
 * among the tests of vitest.config.ts.
 */
import {
  describePair,
  fetchClusterPrograms,
  olderVariable,
  oldestPair,
  type ProgramChoice,
  programsVariable,
  testedPairs,
  toEnv,
} from '../e2e/cluster/programs.ts';
import { buildEnginePrograms, describeEngine } from '../e2e/kind/engine/machine.ts';
import { explain } from '../src/lib/errors.ts';
import { cacheFolder } from './packages/cache-folder.ts';
import { runCommand } from './run-command.ts';
import { formatFailures, formatTable, isSuccess, type PartResult, readVitestSummary } from './test-table.ts';

const print = (line: string) => console.error(`netdra: ${line}`);

interface Part {
  name: string;
  /** Versions of the real programs involved. */
  versions: string;
  command: string[];
  /** Requirements; rejects with the reason why the part cannot run. */
  needs?: Promise<Record<string, string>>;
}

const onNode = (project: string) => ['bash', 'scripts/in-node.sh', 'vitest', 'run', '--project', project];

/**
 * Runs `atOnce` parts at a time, in this order. A part whose programs are still being built does not delay the next
 * ones. The output of a part is printed when it has ended, since others run at the same time.
 */
async function runParts(parts: readonly Part[], atOnce: number): Promise<PartResult[]> {
  const results: PartResult[] = [];
  const waiting = new Set(parts.keys());
  const built = new Set<number>();
  const builds = parts.map(async ({ needs }, index) => {
    // `runPart` reports a failure.
    await needs?.catch(() => undefined);
    built.add(index);
  });
  const work = async () => {
    while (waiting.size > 0) {
      const next = [...waiting].find((index) => built.has(index));
      if (next === undefined) await Promise.race([...waiting].map((index) => builds[index]));
      else {
        waiting.delete(next);
        results[next] = await runPart(parts[next]!);
      }
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return results;
}

async function runPart({ name, versions, command, needs }: Part): Promise<PartResult> {
  const nothing = { name, versions, passed: 0, failed: 0, skipped: 0, failures: [], seconds: 0 };
  let env: Record<string, string>;
  try {
    env = (await needs) ?? {};
  } catch (error) {
    const reason = explain(error);
    print(`${name} is not run: ${reason}`);
    return { ...nothing, reason };
  }
  print(`${name} ...`);
  const startedAt = performance.now();
  const { output, succeeded } = await runCommand(command, env);
  process.stdout.write(`\n=== ${name} ===\n${output}`);
  const seconds = (performance.now() - startedAt) / 1_000;
  return { ...nothing, ...readVitestSummary(output), seconds, succeeded };
}

/** Builds while other parts run. Each part waits only for its own requirements. */
function buildCluster(choice: ProgramChoice, after: Promise<unknown>): Promise<Record<string, string>> {
  return reportedLater(
    after.then(async () => toEnv(await fetchClusterPrograms(cacheFolder(process.env), choice, print))),
  );
}

const onCluster = (...files: string[]) => [
  ...['bash', 'scripts/in-node.sh', 'vitest', 'run', '--config', 'e2e/cluster/vitest.config.ts'],
  ...files,
];

/** The suite on each of the tested pairs, and the parts that are equal for all pairs and run on the first one. */
function clusterParts(): Record<'first' | 'machine' | 'release' | 'upgrade' | 'kind', Part> & { others: Part[] } {
  let last: Promise<unknown> = Promise.resolve();
  const [first, ...others] = testedPairs.map((choice, index) => {
    // One build at a time, in the order of need.
    const after = last.catch(() => undefined);
    const needs = buildCluster(choice, after);
    last = needs;
    const command = onCluster('suite.test.ts', 'api/', '--tags-filter', index === 0 ? '!oldest' : '!newest');
    return { name: `cluster ${index + 1}`, versions: describePair(choice), command, needs };
  });
  const { versions, needs } = first!;
  const inMachine = ['bash', 'scripts/in-node.sh', 'vitest', 'run', '--config', 'e2e/vm/cluster/vitest.config.ts'];
  const machine = {
    name: 'virtual machine with a kubelet',
    versions: `${versions}, QEMU igb`,
    command: inMachine,
    needs,
  };
  const release = {
    name: 'release and pages',
    versions,
    command: onCluster('release.test.ts'),
    needs,
  };
  const both = Promise.all([needs, others.at(-1)?.needs]);
  const upgrade = {
    name: 'upgrade',
    versions: `${describePair(oldestPair)} to ${versions}`,
    command: onCluster('upgrade.test.ts'),
    needs: reportedLater(both.then(([to, from]) => ({ ...to, [olderVariable]: from?.[programsVariable] ?? '' }))),
  };
  const engine = last.catch(() => undefined).then(() => buildEnginePrograms(cacheFolder(process.env), print));
  // The clusters of one node run the other cases with the same versions.
  const kindCases = ['--', '-t', 'several nodes|Metadata file mounted'];
  const kind = {
    name: 'kind',
    versions: `${describeEngine()}, three nodes`,
    command: ['node', 'e2e/kind/run.ts', '--engine', 'own', '--workers', '2', ...kindCases],
    needs: reportedLater(engine.then(() => ({}))),
  };
  return { first: first!, others, machine, release, upgrade, kind };
}

/** A failed build is reported by the part that waits for it. */
function reportedLater<T>(building: Promise<T>): Promise<T> {
  building.catch(() => undefined);
  return building;
}

async function main(): Promise<boolean> {
  const { first, others, machine, release, upgrade, kind } = clusterParts();
  // What is downloaded is needed by the parts after these. The unit tests check the pages, as `npm run check` does.
  const prepared: Part[] = [
    { name: 'types, lint, format', versions: '', command: ['bash', '-ec', 'tsc -p .; biome check .'] },
    { name: 'downloads', versions: '', command: ['bash', 'scripts/fetch-tools.sh'] },
  ];
  // Run alone: they use all processors. The cluster programs are built meanwhile. In the one run that had the simulation beside the
  // suites, with the lowest priority, clusters took a third longer and QEMU three times as long.
  const alone: Part[] = [
    {
      name: 'units',
      versions: `Node.js ${process.versions.node}`,
      command: onNode('quick'),
      needs: Promise.resolve({ NETDRA_QUIRK_RUNS: '500' }),
    },
    {
      name: 'simulation',
      // The first ones of `npm run simulate`, which the workflow runs whole, beside this.
      versions: '6,000 schedules',
      command: ['node', 'test/simulation/run.ts', '--schedules', '6000'],
    },
  ];
  // Longest first, so that both lanes end at about the same time, but the two machines that QEMU emulates do not run at once: each
  // takes a processor. On two processors a third lane saves no time, and makes the parts so slow that waits in them run out.
  const together: Part[] = [
    { name: 'virtual machine', versions: 'QEMU igb', command: ['bash', 'scripts/e2e-vm.sh'] },
    first,
    release,
    kind,
    ...others,
    machine,
    { name: 'integration', versions: 'the kernel of this machine', command: onNode('integration') },
    {
      name: 'site',
      versions: 'VitePress, Chromium',
      command: ['bash', 'docs/site/with-packages.sh', 'bash', 'docs/site/test.sh'],
    },
    { name: 'node', versions: 'containerd 2.1 and 1.7', command: onNode('e2e-node') },
    upgrade,
    {
      name: 'neighbours',
      versions: 'NRI runtime side and metadata codec in Go',
      command: ['bash', 'scripts/e2e-neighbours.sh'],
    },
  ];
  const results = [...(await runParts(prepared, 2)), ...(await runParts(alone, 1)), ...(await runParts(together, 2))];
  const total = (key: 'passed' | 'failed' | 'skipped') => results.reduce((sum, each) => sum + each[key], 0);
  console.log(`\n${formatTable(results)}\n`);
  if (total('failed') > 0) console.log(`${formatFailures(results)}\n`);
  console.log(`total: ${total('passed')} passed, ${total('failed')} failed, ${total('skipped')} skipped`);
  return isSuccess(results, Boolean(process.env.CI));
}

const args = process.argv.slice(2);
if (args.length === 0) process.exitCode = (await main()) ? 0 : 1;
else {
  const downloads = await runCommand(['bash', 'scripts/fetch-tools.sh'], {}, true);
  const tests = ['bash', 'scripts/in-node.sh', 'vitest', 'run', ...args];
  process.exitCode = downloads.succeeded && (await runCommand(tests, {}, true)).succeeded ? 0 : 1;
}
