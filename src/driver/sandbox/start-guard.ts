import { type ClaimMetadata, claimKey, claimName } from '../../framework/metadata/index.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import { SandboxError, type StoredClaim } from '../model/index.ts';
import type { Store } from '../state/index.ts';
import type { Failure } from './claim-progress.ts';

/** Consecutive failures after which an error counts as permanent, even if it is retriable. */
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

/** See `Sandbox`. */
interface SandboxReadiness {
  readonly isEnding: boolean;
  isReady(claimUid: string): boolean;
  failureOf(claimUid: string): Failure | undefined;
}

export interface StartGuardOptions {
  store: Pick<Store, 'claims' | 'claimsOfPod' | 'isOtherPodExpected'>;
  /** Shows which claims containers use. */
  metadata: Pick<ClaimMetadata, 'hasGateOf' | 'isAnyUsedBy' | 'isGated' | 'isUsedBy'>;
  /** Returns whether the runtime handler of a pod runs OCI hooks. */
  runsHooks: (runtimeHandler: string) => boolean;
  /** Called when a container is refused because its claim is prepared for another pod: it may have passed to this one. */
  onOtherPod: () => void;
}

/**
 * Decides whether a container may be created while a claim of its pod is not ready. A container with the start gate waits
 * by itself, unless the error is permanent. Others are refused: the kubelet retries without counting this as a start.
 */
export class StartGuard {
  readonly #options: StartGuardOptions;

  constructor(options: StartGuardOptions) {
    this.#options = options;
  }

  /**
   * Refuses a container that must wait. Allows containers without a claim of ours even while the store is unreadable.
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
    // The kubelet prepares a claim once, and makes no call for a pod that the claim is reserved for later.
    // A gate shows the name of its claim, which an earlier claim may have had that the kubelet forgot.
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
   * Returns whether the hook may return before the pod's VFs are attached: the runtime creates one sandbox at a time while
   * it waits, other pods are expected, and the containers of this pod wait by themselves.
   */
  mayReturnEarly({ runtimeHandler, uid }: StartingPod): boolean {
    const { store, metadata, runsHooks } = this.#options;
    try {
      const claims = store.claimsOfPod(uid).filter(({ state, devices }) => state === 'prepared' && devices.length > 0);
      if (claims.length === 0 || !runsHooks(runtimeHandler) || !store.isOtherPodExpected(uid)) return false;
      return claims.every(({ identity }) => metadata.isGated(identity));
    } catch {
      // The work that needs the store reports that it is unreadable.
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
   * Returns whether a container has gates of other claims of its pod, and so would have this claim's gate if it used the
   * claim. Specs that were written without a gate do not show which claims their containers have.
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
   * Returns whether a container certainly does not use a claim whose devices have left the pod: that of `kubectl debug`, or a
   * sidecar that starts again. Before the claim was ready every container waits: it may need the interface without using
   * the claim, and could end a pod that is not restarted.
   */
  #isUnconcerned(
    { identity }: StoredClaim,
    { runtimeHandler }: StartingPod,
    container: StartingContainer,
    sandbox: SandboxReadiness,
  ): boolean {
    const { metadata, runsHooks } = this.#options;
    if (sandbox.isEnding || sandbox.failureOf(identity.uid)?.wasReady !== true) return false;
    return runsHooks(runtimeHandler) && metadata.isGated(identity) && !metadata.isUsedBy(identity, container);
  }

  /** @returns why the container must not be created; `undefined` if it waits by itself */
  #refusal(
    { identity }: StoredClaim,
    { runtimeHandler }: StartingPod,
    container: StartingContainer,
    sandbox: SandboxReadiness,
  ): string | undefined {
    // If the sandbox was wrongly considered gone, its devices are attached again when the kubelet retries.
    if (sandbox.isEnding) return 'its devices are being detached from this sandbox';
    const failure = sandbox.failureOf(identity.uid);
    if (failure !== undefined && isLasting(failure)) return explain(failure.error);
    const { metadata, runsHooks } = this.#options;
    if (runsHooks(runtimeHandler) && metadata.hasGateOf(identity, container)) return undefined;
    return failure === undefined ? 'its devices are not in this sandbox yet' : explain(failure.error);
  }
}

/** A claim that has given back its devices, and has no new ones yet, is not prepared. */
function isGuarded({ state, devices }: StoredClaim): boolean {
  return state !== 'prepared' || devices.length > 0;
}

function isLasting({ error, attempts }: { error: unknown; attempts: number }): boolean {
  // The container reports the namespace when it waits in the start gate.
  if (error instanceof SandboxError && error.code === 'netns-unknown') return false;
  return attempts >= lastingAttempts || (error instanceof NetdraError && error.retriable !== true);
}

function refused(container: StartingContainer, { identity }: StoredClaim, reason: string): SandboxError {
  const claim = claimName(identity);
  const message = `container ${container.name} cannot start with claim ${claim}: ${reason}`;
  return new SandboxError('not-ready', message, { claim, retriable: true });
}
