import type { Plan } from './plan.ts';

/** Kinds of schedules that can be asked for by name. The first two are among all schedules, too. */
export const modes = {
  stale: 'half of all reads of the API server show a state of up to four seconds ago',
  unobserved: 'watches of the API server leave out states of objects, or end and are to be listed again',
  crashes: 'each schedule again and again: the first instance of the driver is killed before each of its changes',
  liveness: 'soon after the last fault every pod runs, or the driver has said why it does not; no more is looked at',
} as const;

export type Mode = keyof typeof modes;

export function isMode(name: string): name is Mode {
  return Object.hasOwn(modes, name);
}

/** @param crashBefore the change that the first instance is killed before; absent: as drawn */
export function inMode(plan: Plan, mode: Mode | undefined, crashBefore?: number): Plan {
  if (mode === 'stale') return { ...plan, readsPast: true };
  if (mode === 'unobserved') return { ...plan, skipsStates: true };
  if (mode === 'liveness') return { ...plan, isOnlyLive: true };
  return crashBefore === undefined ? plan : { ...plan, killAfter: [crashBefore] };
}
