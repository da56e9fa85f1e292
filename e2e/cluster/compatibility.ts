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

/** Marker line before the results on docs/compatibility.md; the text above it is written by hand. */
const marker = '<!-- Written by `npm run e2e:cluster -- --all`: -->\n';

/**
 * Replaces the results on docs/compatibility.md: a table for each selection of cases, the whole suite first.
 * @throws Error if the page has no marker
 */
export function replaceResults(page: string, results: readonly PairResult[]): string {
  const [text, rest] = page.split(marker);
  if (rest === undefined) throw new Error(`docs/compatibility.md has no line ${marker.trim()}`);
  return `${text}${marker}\n${formatResults(results)}`;
}

function formatResults(results: readonly PairResult[]): string {
  const groups = Map.groupBy(results, ({ vitestArguments }) => formatChoice(vitestArguments));
  const isWhole = (choice: string) => choice === formatChoice([]);
  const sorted = [...groups].sort(([one], [other]) => Number(isWhole(other)) - Number(isWhole(one)));
  return sorted.map(([choice, group]) => `### ${choice}\n\n${formatTable(group)}\n`).join('\n');
}

function formatChoice(vitestArguments: readonly string[]): string {
  if (vitestArguments.length === 0) return 'All cases';
  const quoted = vitestArguments.map((word) => (/^[\w./-]+$/.test(word) ? word : `'${word}'`));
  return `Cases selected by \`${quoted.join(' ')}\``;
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

/** Formats a result without the number of cases, which differs between the pairs of one table since it grows from day to day. */
function formatCell({ succeeded, failed, date }: PairResult): string {
  if (succeeded) return `passed ${date}`;
  return failed > 0 ? `${failed} failed ${date}` : `did not start ${date}`;
}
