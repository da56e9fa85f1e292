/**
 * What the hook answers when it cannot write the metadata.
 * `reject`: an error; the runtime gives the sandbox up and the kubelet tries with a new one.
 * `gate`: success without a file; the containers of the claim cannot start, since what they would mount is not there,
 * while the driver goes on trying.
 */
export type HookFailure = 'reject' | 'gate';

/** What the operator chooses: `auto` gates on runtimes that leak a record for every refused sandbox. */
export const hookFailureModes = ['auto', 'reject', 'gate'] as const;
export type HookFailureMode = (typeof hookFailureModes)[number];

/** First patch release that gives a refused sandbox back whole, by minor release; `Infinity`: none does. */
const fixedIn: Readonly<Record<string, number>> = { '2.0': Infinity, '2.1': Infinity, '2.2': 6, '2.3': 3 };

/**
 * Chooses by the runtime that Configure told of. Leaked records can keep containerd from starting again
 * (containerd issues 13355 and 13609), which is worse than a container that waits.
 */
export function resolveHookFailure(mode: HookFailureMode, runtime: { name: string; version: string }): HookFailure {
  if (mode !== 'auto') return mode;
  if (runtime.name !== 'containerd') return 'reject';
  const [, minor, patch] = /^v?(\d+\.\d+)\.(\d+)/.exec(runtime.version) ?? [];
  // A build that does not say its version may be an affected one.
  if (minor === undefined) return 'gate';
  return Number(patch) < (fixedIn[minor] ?? 0) ? 'gate' : 'reject';
}
