import { type Damage, type Fault, horizonMs, type PlainFault, type PodPlan } from './plan.ts';
import type { Tape } from './tape.ts';

/** A claim is allocated again for the next pod, and the devices that it had cannot be restored at first. */
export function drawRefusals(tape: Tape, pods: readonly PodPlan[]): Fault[] {
  return pods.flatMap((pod, index): Fault[] => {
    const before = pods[index - 1];
    if (!pod.takesOver || before?.isForced !== true || !tape.chance(0.4, 'again')) return [];
    const freeAtMs = before.arrivesAtMs + (before.deletedAfterMs ?? 0);
    const atMs = Math.max(pod.arrivesAtMs, freeAtMs) + tape.below(2_500, 'again');
    const kind = tape.pick(['card refuses', 'interfaces late', 'store error', 'kill driver'] as const, 'again');
    return [{ kind, atMs, forMs: 1_000 + tape.below(6_000, 'again') }];
  });
}

/** The kubelet forgets its claims when a pod ends whose successor has claims of the same names. */
export function drawForgottenState(tape: Tape, pods: readonly PodPlan[]): Fault {
  const [{ arrivesAtMs = 0, deletedAfterMs = 0 } = {}] = pods;
  const atMs = arrivesAtMs + deletedAfterMs + tape.below(1_000, 'name');
  return { kind: 'restart kubelet', atMs, forMs: 100 + tape.below(1_000, 'name'), isStateLost: true };
}

/** Faults while a pod ends: no container waits for what fails then. */
export function drawEnds(tape: Tape, pods: readonly PodPlan[]): Fault[] {
  if (!tape.chance(0.15, 'end')) return [];
  const ends = pods.flatMap(({ arrivesAtMs, deletedAfterMs }) =>
    deletedAfterMs === undefined ? [] : arrivesAtMs + deletedAfterMs,
  );
  const endsAtMs = ends[tape.below(ends.length, 'end')];
  if (endsAtMs === undefined) return [];
  return Array.from({ length: 1 + tape.below(3, 'end') }, (): Fault => {
    const atMs = endsAtMs + Math.floor(2_000 * tape.fraction('end') ** 2);
    const forMs = 100 + Math.floor(4_000 * tape.fraction('end') ** 2);
    const kind = tape.pick<PlainFault>(
      ['disk error', 'store error', 'card refuses', 'kill driver', 'stall driver', 'disk full'],
      'end',
    );
    return { kind, atMs, forMs };
  });
}

/** The driver is started twice in the same boot of the node. */
export function drawRestartsAfterBoot(tape: Tape, faults: readonly Fault[]): Fault[] {
  return faults.flatMap((fault): Fault[] => {
    if (fault.kind !== 'reboot' || !tape.chance(0.5, 'end')) return [];
    return [{ kind: 'kill driver', atMs: fault.atMs + fault.forMs + 3_000 + tape.below(8_000, 'end'), forMs: 100 }];
  });
}

/**
 * Two instances serve a pod, the newer one stops while it waits for the older one, or may do so, and goes on when the pod has
 * its next sandbox.
 */
export function drawContest(tape: Tape, pods: readonly PodPlan[]): Fault[] {
  const startMs = pods[0]?.arrivesAtMs ?? 0;
  const stallMs = startMs + 100 + tape.below(1_500, 'more');
  const lostAfterMs = 100 + tape.below(2_000, 'more');
  const forMs = 4_000 + tape.below(4_000, 'more');
  return [
    { kind: 'update driver', atMs: startMs - 500, forMs: 20_000, isKilled: true },
    { kind: 'stall in wait', atMs: startMs, forMs: 2 * forMs, lostAfterMs },
    { kind: 'stall driver', atMs: stallMs, forMs },
    { kind: 'lose sandbox', atMs: stallMs + lostAfterMs, forMs: 0, isDriverAway: false },
  ];
}

/** One outage of the card's cable, or a link that flaps. From a generator of its own, like the rest of what came later. */
export function drawOutages(tape: Tape): Fault[] {
  if (!tape.chance(0.12, 'cable')) return [];
  const flaps = 2 + tape.below(12, 'cable');
  const [count, longestMs] = tape.chance(0.4, 'cable') ? [flaps, 3_000] : [1, 25_000];
  let atMs = 0;
  return Array.from({ length: count }, (): Fault => {
    atMs += 500 + tape.below(longestMs > 3_000 ? 15_000 : 2_500, 'cable');
    const forMs = 100 + tape.below(longestMs, 'cable');
    const outage = { kind: 'cable out' as const, atMs, forMs };
    atMs += forMs;
    return outage;
  }).filter(({ atMs }) => atMs < horizonMs - 10_000);
}

/** One time without an LACP partner; not together with outages of the cable, whose taints are counted. */
export function drawSilence(tape: Tape, outages: readonly Fault[]): Fault[] {
  if (!tape.chance(0.1, 'lacp') || outages.length > 0) return [];
  const atMs = 500 + tape.below(15_000, 'lacp');
  return [{ kind: 'partner lost', atMs, forMs: 100 + tape.below(horizonMs - 11_000 - atMs, 'lacp') }];
}

/** A time in which CNI and IPAM plugins take seconds, and interfaces appear late. */
export function drawSlowness(tape: Tape): Fault[] {
  if (!tape.chance(0.08, 'slow')) return [];
  return [{ kind: 'devices slow', atMs: tape.below(5_000, 'slow'), forMs: 5_000 + tape.below(20_000, 'slow') }];
}

export function drawMoreFault(tape: Tape): Fault {
  const atMs = Math.floor(500 + 25_000 * tape.fraction('more') ** 1.5);
  const forMs = 100 + Math.floor(6_000 * tape.fraction('more') ** 2);
  const kind = tape.weighted<Fault['kind']>(
    [
      [3, 'reads fail'],
      [3, 'damage file'],
      [1, 'stall runtime'],
      [1, 'stall kubelet'],
      [2, 'card refuses'],
      [1, 'interfaces late'],
      [1, 'clock step'],
    ],
    'more',
  );
  if (kind === 'reads fail') return { kind, atMs, forMs, of: tape.pick(['files', 'store', 'card'], 'more') };
  if (kind === 'clock step') return { kind, atMs, byMs: tape.pick([3_600_000, -3_600_000, 4_000, -4_000], 'more') };
  if (kind !== 'damage file') return { kind: kind as PlainFault, atMs, forMs };
  const of = tape.chance(0.2, 'CDI') ? 'CDI spec' : tape.pick<Damage['of']>(['gate', 'metadata'], 'more');
  return { kind, atMs, of, how: tape.pick<Damage['how']>(['empty', 'torn', 'newer', 'removed'], 'more') };
}

/** Some faults come together, while a pod starts: bugs that need several of them are seldom found otherwise. */
export function drawFaults(tape: Tape, pods: readonly PodPlan[]): Fault[] {
  const count = tape.weighted([
    [3, 0],
    [4, 1],
    [3, 2],
    [1, 4],
  ]);
  const middle = count > 1 && tape.chance(0.5) ? pods[tape.below(pods.length)]?.arrivesAtMs : undefined;
  return Array.from({ length: count }, (): Fault => {
    const fraction = tape.fraction() ** 1.5;
    const atMs = Math.floor(middle === undefined ? 500 + 25_000 * fraction : middle + 3_000 * fraction);
    const forMs = 100 + Math.floor(10_000 * tape.fraction() ** 2);
    const kind = tape.weighted<Fault['kind']>([
      [3, 'kill driver'],
      [2, 'restart runtime'],
      [3, 'restart kubelet'],
      [2, 'lose sandbox'],
      [1, 'stall driver'],
      [1, 'reset card'],
      [1, 'reboot'],
      [1, 'API server away'],
      [1, 'disk full'],
      [1, 'disk error'],
      [1, 'store error'],
      [2, 'update driver'],
      [1, 'change policy'],
    ]);
    if (kind === 'update driver') return { kind, atMs, forMs: 3 * forMs, isKilled: tape.chance(0.5) };
    if (kind === 'restart kubelet') return { kind, atMs, forMs, isStateLost: tape.chance(0.15) };
    if (kind === 'lose sandbox') return { kind, atMs, forMs, isDriverAway: tape.chance(0.4) };
    return { kind: kind as PlainFault, atMs, forMs };
  });
}
