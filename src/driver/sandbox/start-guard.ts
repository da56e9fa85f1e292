import { type ClaimMetadata, claimKey, claimName } from '../../framework/metadata/index.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import { SandboxError, type SandboxIdentity, type StoredClaim, wasServedIn } from '../model/index.ts';
import type { Store } from '../state/index.ts';
import type { Failure } from './claim-progress.ts';

/** Number of consecutive failures after which an error counts as permanent, even if it is retriable. */
const lastingAttempts = 3;

interface StartingPod {
  uid: string;
  runtimeHandler: string;
}

export interface StartingContainer {
  name: string;
  env: readonly string[];
  createRuntimeHooks: readonly { args: readonly string[] }[];
}

/** Part of `Sandbox` that the guard reads. */
interface SandboxReadiness {
  readonly facts: SandboxIdentity;
  readonly isEnding: boolean;
  isReady(claimUid: string): boolean;
  failureOf(claimUid: string): Failure | undefined;
}

export interface StartGuardOptions {
  store: Pick<Store, 'claims' | 'claimsOfPod' | 'isOtherPodExpected'>;
  /** Metadata that shows which claims containers use. */
  metadata: Pick<ClaimMetadata, 'hasGateOf' | 'isAnyUsedBy' | 'isGated' | 'isUsedBy'>;
  /** Returns whether a runtime handler runs OCI hooks. */
  runsHooks: (runtimeHandler: string) => boolean;
  /** Called when a container is refused because its claim is prepared for another pod: the claim may have moved to this pod. */
  onOtherPod: () => void;
}

/**
 * Decides whether a container may be created while a claim of its pod is not ready. A container with the start gate waits by
 * itself, unless the error is permanent. Other containers are refused: the kubelet then retries without counting a restart.
 */
export class StartGuard {
  readonly #options: StartGuardOptions;

  constructor(options: StartGuardOptions) {
    this.#options = options;
  }

  /**
   * Refuses a container that must wait. Even while the store is unreadable, allows containers that use no claim of this
   * driver.
   * @throws SandboxError `not-ready` with the reason; StateError `store-unusable`
   */
  check(pod: StartingPod, container: StartingContainer, sandbox: SandboxReadiness): void {
    const { store, metadata, onOtherPod } = this.#options;
    const isAnyUsed = metadata.isAnyUsedBy(container);
    const all = this.#claimsOf(pod, isAnyUsed);
    const claims = all.filter(isGuarded);
    for (const claim of claims) {
      if (claim.state !== 'prepared') {
        onOtherPod();
        throw refused(container, claim, 'the claim has passed to this pod, for which its devices are not prepared yet');
      }
      if (sandbox.isReady(claim.identity.uid) || this.#usesOnlyOthers(claim, claims, pod, container)) continue;
      if (this.#isUnconcerned(claim, pod, container, sandbox)) continue;
      const reason = this.#refusal(claim, pod, container, sandbox);
      if (reason !== undefined) throw refused(container, claim, reason);
    }
    if (!isAnyUsed) return;
    // The kubelet prepares a claim once, and makes no call for a pod that the claim is reserved for later. A gate shows only
    // the name of its claim: an earlier claim that the kubelet has forgotten may have had the same name.
    const own = new Set(all.map(({ identity }) => claimKey(identity)));
    const other = store.claims().find((claim) => {
      const { identity, podUids } = claim;
      if (!isGuarded(claim) || podUids.includes(pod.uid) || own.has(claimKey(identity))) return false;
      return metadata.isUsedBy(identity, container);
    });
    if (other === undefined) return;
    onOtherPod();
    throw refused(container, other, 'its devices are prepared for another pod, and a device cannot be in two pods');
  }

  /**
   * Returns whether the hook may return before the pod's VFs are attached: while the hook runs, the runtime creates no other
   * sandbox. It may if other pods are expected and the containers of this pod wait by themselves.
   */
  mayReturnEarly({ runtimeHandler, uid }: StartingPod): boolean {
    const { store, metadata, runsHooks } = this.#options;
    try {
      const claims = store.claimsOfPod(uid).filter(({ state, devices }) => state === 'prepared' && devices.length > 0);
      if (claims.length === 0 || !runsHooks(runtimeHandler) || !store.isOtherPodExpected(uid)) return false;
      return claims.every(({ identity }) => metadata.isGated(identity));
    } catch {
      // Other work that needs the store reports that it is unreadable.
      return false;
    }
  }

  #claimsOf({ uid }: StartingPod, isAnyUsed: boolean): StoredClaim[] {
    try {
      return this.#options.store.claimsOfPod(uid);
    } catch (error) {
      if (isAnyUsed) throw error;
      return [];
    }
  }

  /**
   * Returns whether a container uses only other claims of its pod: it has their gates, and would have this claim's gate if it
   * used the claim. A claim whose specs were written without a gate does not show its containers.
   */
  #usesOnlyOthers(
    claim: StoredClaim,
    claims: readonly StoredClaim[],
    pod: StartingPod,
    container: StartingContainer,
  ): boolean {
    const { metadata, runsHooks } = this.#options;
    const used = claims.filter(({ identity }) => metadata.hasGateOf(identity, container));
    if (used.length === 0 || used.includes(claim)) return false;
    return runsHooks(pod.runtimeHandler) && metadata.isGated(claim.identity);
  }

  /**
   * Returns whether a container certainly does not use a claim whose devices have left the pod, such as a container of
   * `kubectl debug`, or a sidecar that restarts. Until the claim was served once, every container waits: it may need the
   * interface without using the claim, and its failure could end a pod that is not restarted.
   */
  #isUnconcerned(
    claim: StoredClaim,
    { runtimeHandler }: StartingPod,
    container: StartingContainer,
    { isEnding, facts }: SandboxReadiness,
  ): boolean {
    const { metadata, runsHooks } = this.#options;
    const { identity } = claim;
    if (isEnding || !wasServedIn(claim, facts.sandboxId)) return false;
    return runsHooks(runtimeHandler) && metadata.isGated(identity) && !metadata.isUsedBy(identity, container);
  }

  /** Returns why the container must not be created; `undefined` if it waits by itself. */
  #refusal(
    { identity }: StoredClaim,
    { runtimeHandler }: StartingPod,
    container: StartingContainer,
    sandbox: SandboxReadiness,
  ): string | undefined {
    // If the sandbox was wrongly taken for gone, its devices are attached again when the kubelet retries.
    if (sandbox.isEnding) return 'its devices are being detached from this sandbox';
    const failure = sandbox.failureOf(identity.uid);
    if (failure !== undefined && isLasting(failure)) return explain(failure.error);
    const { metadata, runsHooks } = this.#options;
    if (runsHooks(runtimeHandler) && metadata.hasGateOf(identity, container)) return undefined;
    return failure === undefined ? 'its devices are not in this sandbox yet' : explain(failure.error);
  }
}

/** Returns whether a claim concerns the guard: it has devices, or it is not prepared since it has given its devices back. */
function isGuarded({ state, devices }: StoredClaim): boolean {
  return state !== 'prepared' || devices.length > 0;
}

function isLasting({ error, attempts }: { error: unknown; attempts: number }): boolean {
  // The container is let through: it reports the namespace when it waits in the start gate.
  if (error instanceof SandboxError && error.code === 'netns-unknown') return false;
  return attempts >= lastingAttempts || (error instanceof NetdraError && error.retriable !== true);
}

function refused(container: StartingContainer, { identity }: StoredClaim, reason: string): SandboxError {
  const claim = claimName(identity);
  const message = `container ${container.name} cannot start with claim ${claim}: ${reason}`;
  return new SandboxError('not-ready', message, { claim, retriable: true });
}
