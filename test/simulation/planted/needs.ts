import type { ClaimPlan, Fault, Plan, PodPlan } from '../plan.ts';

/** Whether a schedule has the circumstances in which a bug can show. */
export type Needs = (plan: Plan) => boolean;

type Kinds = readonly Fault['kind'][];
type PodNeeds = (pod: PodPlan, next: PodPlan | undefined) => boolean;

/** A pod like this. */
export function pod(is: PodNeeds): Needs {
  return ({ pods }) => pods.some((each, index) => is(each, pods[index + 1]));
}

/** One of these faults happens this long after such a pod arrives. */
export function fault(kinds: Kinds, fromMs: number, toMs: number, is: PodNeeds = () => true): Needs {
  return (plan) =>
    pod((each, next) => {
      const isThen = ({ kind, atMs }: Fault) =>
        kinds.includes(kind) && atMs >= each.arrivesAtMs + fromMs && atMs <= each.arrivesAtMs + toMs;
      return is(each, next) && plan.faults.some(isThen);
    })(plan);
}

/** One of these faults happens while there are two instances of the driver, or shortly before. */
export function faultInUpdate(kinds: Kinds, fromMs = 0): Needs {
  return ({ faults }) =>
    faults.some(
      (update) =>
        update.kind === 'update driver' &&
        faults.some(
          ({ kind, atMs }) => kinds.includes(kind) && atMs > update.atMs + fromMs && atMs < update.atMs + update.forMs,
        ),
    );
}

export function has({ claims }: PodPlan, is: Partial<ClaimPlan>): boolean {
  return claims.some((claim) =>
    Object.entries({ adminAccess: false, ...is }).every(([key, value]) => claim[key as keyof ClaimPlan] === value),
  );
}
