import { type KubernetesVersion, kubernetesRelease, kubernetesVersions, type RuntimeName } from './programs.ts';

/** Results of the suite's cases with one Kubernetes and one runtime. */
export interface PairResult {
  kubernetes: KubernetesVersion;
  runtime: RuntimeName;
  /** Display name of the runtime. Each build of CRI-O is a runtime of its own. */
  runtimeLabel: string;
  /** Arguments that selected cases; none: all were run. */
  vitestArguments: readonly string[];
  /** Date of the run: `2026-11-22`. */
  date: string;
  succeeded: boolean;
  passed: number;
  failed: number;
  skipped: number;
}

type Pair = Pick<PairResult, 'kubernetes' | 'runtimeLabel' | 'vitestArguments'>;

/** Whether two results are for the same cases on the same pair. */
function isSame(one: Pair, other: Pair): boolean {
  const key = ({ kubernetes, runtimeLabel, vitestArguments }: Pair) =>
    JSON.stringify([kubernetes, runtimeLabel, vitestArguments]);
  return key(one) === key(other);
}

/** The result for a pair, if any. */
export function findResult(results: readonly PairResult[], pair: Pair): PairResult | undefined {
  return results.find((each) => isSame(each, pair));
}

/** @returns results without that of the pair */
export function withoutResult(results: readonly PairResult[], pair: Pair): PairResult[] {
  return results.filter((each) => !isSame(each, pair));
}

/** The text of docs/compatibility.md: a table for each choice of cases, the whole suite first. */
export function formatCompatibility(results: readonly PairResult[]): string {
  const groups = Map.groupBy(results, ({ vitestArguments }) => formatChoice(vitestArguments));
  const isWhole = (choice: string) => choice === formatChoice([]);
  const sorted = [...groups].sort(([one], [other]) => Number(isWhole(other)) - Number(isWhole(one)));
  const sections = sorted.map(([choice, group]) => {
    const dates = group.map(({ date }) => date).sort();
    const [first, last] = [dates[0], dates.at(-1)];
    return `## ${choice}\n\nRun on ${first === last ? first : `${first} to ${last}`}.\n\n${formatTable(group)}\n`;
  });
  return `# Compatibility

Results of the suite of \`e2e/cluster\` on a real cluster of one node, with each version of Kubernetes and each container
runtime, written by \`npm run e2e:cluster -- --all\`. Arguments behind a second \`--\` choose among the cases and head the table.
\`npm test\` runs the cases on the newest and the oldest Kubernetes, and those that do not depend on the versions on one of them.
Cases are skipped where the version or the runtime does not have what they test; the run names the reason. CRI-O is in no package registry that the suite could build it from, so
its programs are named by \`--crio DIR\`.

${sections.join('\n')}`;
}

function formatChoice(vitestArguments: readonly string[]): string {
  if (vitestArguments.length === 0) return 'All cases';
  const quoted = vitestArguments.map((word) => (/^[\w./-]+$/.test(word) ? word : `'${word}'`));
  return `Cases chosen by ${quoted.join(' ')}`;
}

function formatTable(group: readonly PairResult[]): string {
  const labels = [...new Set(group.map(({ runtimeLabel }) => runtimeLabel))];
  const isRun = group.some(({ runtime }) => runtime === 'crio');
  const columns = isRun ? labels : [...labels, 'CRI-O'];
  const row = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  const rows = kubernetesVersions.map((kubernetes) => {
    const cell = (column: string) => {
      const result = group.find((each) => each.kubernetes === kubernetes && each.runtimeLabel === column);
      return result === undefined ? `not run${column === 'CRI-O' ? ': no --crio' : ''}` : formatCell(result);
    };
    return row([kubernetesRelease(kubernetes), ...columns.map(cell)]);
  });
  return [row(['Kubernetes', ...columns]), row(['---', ...columns.map(() => '---')]), ...rows].join('\n');
}

function formatCell({ succeeded, passed, failed, skipped, vitestArguments }: PairResult): string {
  const counts = [
    `${passed} passed`,
    ...(failed > 0 ? [`${failed} failed`] : []),
    // With arguments, cases that were not selected count as skipped.
    ...(skipped > 0 && vitestArguments.length === 0 ? [`${skipped} skipped`] : []),
  ];
  return succeeded || failed > 0 ? counts.join(', ') : 'did not start';
}
