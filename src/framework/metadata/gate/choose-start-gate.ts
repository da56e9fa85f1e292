import type { RuntimeHandlers } from './runtime-handlers.ts';

/**
 * Ways in which containers wait for their devices. `hook`: in an OCI hook. `file`: their metadata file is missing until then,
 * and the runtime refuses to start them. `auto`: `hook`, unless the node has a runtime handler that might not run it.
 */
export const startGateModes = ['auto', 'hook', 'file'] as const;
export type StartGateMode = (typeof startGateModes)[number];

/** Runtime handlers that do not run the OCI hooks of CDI devices: gVisor and Kata Containers. `*` stands for any characters. */
export const defaultHooklessHandlers: readonly string[] = ['runsc', 'runsc-*', 'gvisor', 'gvisor-*', 'kata', 'kata-*'];

export interface StartGateChoice {
  gate: 'hook' | 'file';
  /** Reason of the choice, for the log. */
  reason: string;
  /** Whether to warn the operator, since the choice may not be the intended one. */
  isDoubtful: boolean;
}

/**
 * Chooses the start gate of a node. A container that starts without its devices is worse than one that fails: with `auto`, the
 * choice is `file` if a runtime handler may ignore hooks, or if the Node cannot be read. If the runtime does not report its
 * handlers, the choice is `hook`, and only NRI keeps out the pods of handlers without hooks: see `isHookless`.
 */
export function chooseStartGate(
  mode: StartGateMode,
  handlers: RuntimeHandlers,
  hooklessHandlers: readonly string[],
): StartGateChoice {
  const choice = (gate: StartGateChoice['gate'], reason: string, isDoubtful = false) => ({ gate, reason, isDoubtful });
  const hookless = typeof handlers === 'object' && 'names' in handlers ? namesOf(handlers.names, hooklessHandlers) : '';
  if (mode === 'file') return choice('file', 'as configured');
  if (mode === 'hook') {
    if (hookless === '') return choice('hook', 'as configured');
    return choice(
      'hook',
      `as configured, although these runtime handlers possibly ignore hooks, so that their containers do not wait: ${hookless}`,
      true,
    );
  }
  if (handlers === 'unknown') return choice('hook', 'the runtime does not say which handlers it has');
  if ('unreadable' in handlers) {
    return choice('file', `runtime handlers cannot be read from the Node: ${handlers.unreadable}`, true);
  }
  if (hookless !== '') return choice('file', `these runtime handlers possibly ignore hooks: ${hookless}`);
  return choice('hook', 'all runtime handlers of the node run hooks');
}

/**
 * Returns whether containers of a runtime handler may start without running their hooks.
 * @param handler name of the handler as NRI reports it for a pod; empty for the default handler
 * @param patterns names of handlers, in which `*` stands for any characters
 */
export function isHookless(handler: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => {
    const parts = pattern.split('*').map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'));
    return new RegExp(`^${parts.join('.*')}$`, 's').test(handler);
  });
}

function namesOf(handlers: readonly string[], patterns: readonly string[]): string {
  return handlers.filter((name) => isHookless(name, patterns)).join(', ');
}
