import type { Fault, Plan, PodPlan } from '../plan.ts';

/** Whether a schedule has the circumstances in which a bug can show. */
export type Needs = (plan: Plan) => boolean;

type PodNeeds = (pod: PodPlan, next: PodPlan | undefined) => boolean;

/** A pod like this. */
export function pod(is: PodNeeds): Needs {
  return ({ pods }) => pods.some((each, index) => is(each, pods[index + 1]));
}

/** The runtime restarts while such a pod starts. */
export function restartAtStart(is: PodNeeds = () => true): Needs {
  const isThen = ({ arrivesAtMs: ms }: PodPlan) => {
    return ({ kind, atMs }: Fault) => kind === 'restart runtime' && atMs > ms && atMs < ms + 4_000;
  };
  return (plan) => pod((each, next) => is(each, next) && plan.faults.some(isThen(each)))(plan);
}

/** Another one of these faults happens near an update of the driver. */
export function faultNearUpdate(...kinds: Fault['kind'][]): Needs {
  return ({ faults }) => {
    const isNear =
      (update: Extract<Fault, { kind: 'update driver' }>) =>
      ({ kind, atMs }: Fault) =>
        kinds.includes(kind) && atMs > update.atMs - 1_000 && atMs < update.atMs + update.forMs;
    return faults.some((each) => each.kind === 'update driver' && faults.some(isNear(each)));
  };
}

/** One of these faults happens. */
export function fault(...kinds: Fault['kind'][]): Needs {
  return ({ faults }) => faults.some(({ kind }) => kinds.includes(kind));
}
