import { pinnedVersion } from '../go/build.ts';
import { type KubernetesVersion, kubernetesVersions, type RuntimeName, runtimeNames } from './programs.ts';

/** How the suite ended with one Kubernetes and one runtime. */
export interface PairResult {
  kubernetes: KubernetesVersion;
  runtime: RuntimeName;
  succeeded: boolean;
  passed: number;
  failed: number;
  skipped: number;
}

/**
 * The text of docs/compatibility.md.
 * @param vitestArguments what chose among the cases; none: all were run
 */
export function formatCompatibility(results: readonly PairResult[], vitestArguments: readonly string[]): string {
  const quoted = vitestArguments.map((word) => (/^[\w./-]+$/.test(word) ? word : `'${word}'`));
  const command = ['npm run e2e:cluster -- --all', ...(quoted.length === 0 ? [] : ['--', ...quoted])].join(' ');
  const cell = (kubernetes: KubernetesVersion, runtime: RuntimeName) => {
    const result = results.find((each) => each.kubernetes === kubernetes && each.runtime === runtime);
    if (result === undefined) return 'not run';
    const { succeeded, passed, failed, skipped } = result;
    const counts = [
      `${passed} passed`,
      ...(failed > 0 ? [`${failed} failed`] : []),
      // With arguments, those that were not chosen count as skipped.
      ...(skipped > 0 && vitestArguments.length === 0 ? [`${skipped} skipped`] : []),
    ];
    return succeeded || failed > 0 ? counts.join(', ') : 'did not start';
  };
  const row = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  const rows = kubernetesVersions.map((kubernetes) => {
    const version = pinnedVersion(`kubernetes-${kubernetes}`, 'k8s.io/kubernetes') ?? kubernetes;
    return row([version, ...runtimeNames.map((runtime) => cell(kubernetes, runtime))]);
  });
  return `# Compatibility

Written by \`${command}\`: the suite of \`e2e/cluster\` on a real cluster of one node, with each version of
Kubernetes and each container runtime. ${
    vitestArguments.length === 0
      ? 'Cases are skipped where the version or the runtime does not have what they\ntest; the run names the reason.'
      : 'The arguments choose among the cases; `npm test` runs all of them on the\nnewest and the oldest Kubernetes.'
  }

${row(['Kubernetes', ...runtimeNames.map((name) => name.replace('-', ' '))])}
${row(['---', ...runtimeNames.map(() => '---')])}
${rows.join('\n')}

CRI-O is in no registry that the suite could build it from.
`;
}
