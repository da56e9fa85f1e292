import type { StatusCondition } from '../../framework/kube/index.ts';
import { type ClaimIdentity, type ClaimMetadata, claimName } from '../../framework/metadata/index.ts';
import { explain } from '../../lib/errors.ts';
import type { NumaNodes } from '../../node/numa/index.ts';
import { SandboxError, type StoredClaim, type StoredDevice } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import type { Container, PodSandbox } from './container-fields.ts';
import {
  compareNodes,
  describePlacement,
  exclusiveCpus,
  type NumaResult,
  placementOf,
  worstOf,
} from './numa-placement.ts';

/**
 * Number of refusals of a container after which its claim is marked. The kubelet keeps the CPUs of a pod, so retries do not
 * help; but the first ones follow within seconds, and may meet a kubelet that is being reconfigured.
 */
const markedAfter = 3;
/** Maximum number of containers whose comparison is deferred: more than a node has. */
const mostDeferred = 1_000;

const refusalHint =
  'a pod keeps its CPUs, so delete it, and request CPUs and device with matchAttribute resource.kubernetes.io/numaNode, see docs/numa.md; or set numa: report';

/** NUMA checks for sandboxes: see {@link NumaGuard}. */
export interface NumaChecks {
  check(pod: PodSandbox, container: Container): boolean;
  observe(pod: PodSandbox, container: Container): void;
  alignmentOf(claimUid: string, sandboxId: string, device: string): NumaResult | undefined;
}

export interface NumaGuardOptions {
  store: StoredClaims;
  metadata: Pick<ClaimMetadata, 'isAnyUsedBy' | 'isRequestUsedBy' | 'isUsedBy'>;
  /** Returns the NUMA nodes of the machine. @throws Error if they cannot be read */
  numaNodes: () => NumaNodes;
  /** Called for each container with exclusive CPUs and devices that is to be created. */
  onCompared: (result: NumaResult | 'refused') => void;
  /** Called for a container that starts although it is not aligned with devices of a claim. @param reason text for users */
  onMisaligned: (pod: PodSandbox, claim: ClaimIdentity, reason: string) => void;
  /** Called when refusals have changed the condition of a claim. */
  onCondition: (claim: ClaimIdentity) => void;
}

/** A device of a container, and its comparison with the container's CPUs and memory. */
interface ComparedDevice {
  claim: StoredClaim;
  device: StoredDevice;
  result: NumaResult;
  /** NUMA node of the device, as text for users. */
  text: string;
}

/** Result of comparing a container with its devices. */
interface Comparison {
  devices: readonly ComparedDevice[];
  /** NUMA nodes of the container's CPUs and memory, as text for users. */
  where: string;
}

/** Last comparison of a container, and its refusals. */
interface ContainerComparison extends Comparison {
  /** Number of consecutive refusals. */
  refusals: number;
}

/** Comparisons of the containers of a claim, by container name. */
interface ClaimComparison {
  podUid: string;
  sandboxId: string;
  containers: Map<string, ContainerComparison>;
}

/**
 * Compares the exclusive CPUs and the memory of containers with the NUMA nodes of their devices. Containers without exclusive
 * CPUs always pass. Results are kept until the claim has containers in another sandbox, or is unprepared.
 */
export class NumaGuard implements NumaChecks {
  readonly #options: NumaGuardOptions;
  /** Comparisons by UID of the claim. */
  readonly #claims = new Map<string, ClaimComparison>();
  /**
   * Containers whose comparison is deferred, by container ID: it failed, or the claim is not prepared for the container's pod
   * yet.
   */
  readonly #deferred = new Map<string, [pod: PodSandbox, container: Container]>();

  constructor(options: NumaGuardOptions) {
    this.#options = options;
  }

  /**
   * Compares a container that is to be created.
   * @returns whether metadata and status of its devices must change
   * @throws SandboxError `numa-mismatch` or `numa-unknown` if a claim with `numa: require` refuses it; StateError
   */
  check(pod: PodSandbox, container: Container): boolean {
    const { onCompared, onCondition } = this.#options;
    const claims = this.#claimsOf(pod, container);
    // The container's claim is still prepared for another pod.
    if (claims.length === 0 && this.#options.metadata.isAnyUsedBy(container)) this.#defer(pod, container);
    const { devices, where } = this.#compare(pod, container, claims);
    const refused = devices.filter(({ device, result }) => device.config.numa === 'require' && result !== 'aligned');
    const isRefused = refused.length > 0;
    if (devices.length > 0) onCompared(isRefused ? 'refused' : worstOf(devices.map(({ result }) => result)));
    const changed = claims.filter((claim) => {
      const before = this.#shown(claim);
      const refusals = isRefused ? this.#refusalsOf(claim, pod, container) + 1 : 0;
      this.#note(claim, pod, container, { devices, where, refusals });
      return this.#shown(claim) !== before;
    });
    if (isRefused) {
      for (const { identity } of changed) onCondition(identity);
      throw refusal(container, refused, where);
    }
    this.#report(pod, container, claims, { devices, where });
    return changed.length > 0;
  }

  /**
   * Compares a container that was created while the driver was not connected. The result is only reported, and only once.
   * @throws StateError: `observeDeferred` tries again
   */
  observe(pod: PodSandbox, container: Container): void {
    this.#defer(pod, container);
    const claims = this.#claimsOf(pod, container);
    if (claims.length > 0 || !this.#options.metadata.isAnyUsedBy(container)) this.#deferred.delete(container.id);
    const found = this.#compare(pod, container, claims);
    const added = claims.filter((claim) => this.#of(claim, pod)?.containers.has(container.name) !== true);
    for (const claim of claims) this.#note(claim, pod, container, { ...found, refusals: 0 });
    this.#report(pod, container, added, found);
  }

  /** Compares deferred containers, unless they were created again in the meantime. @throws StateError */
  observeDeferred(): void {
    for (const [pod, container] of [...this.#deferred.values()]) {
      const isKnown = (claim: StoredClaim) => this.#of(claim, pod)?.containers.has(container.name) === true;
      if (this.#claimsOf(pod, container).some(isKnown)) this.#deferred.delete(container.id);
      else this.observe(pod, container);
    }
  }

  /** Returns the worst alignment of the sandbox's containers with the device; `undefined` if none was compared. */
  alignmentOf(claimUid: string, sandboxId: string, device: string): NumaResult | undefined {
    const found = this.#claims.get(claimUid);
    if (found?.sandboxId !== sandboxId) return undefined;
    const started = [...found.containers.values()].filter(({ refusals }) => refusals === 0);
    const results = started.flatMap(({ devices }) => resultsOf(devices, device).map(({ result }) => result));
    return results.length === 0 ? undefined : worstOf(results);
  }

  /**
   * Returns the condition `NumaAligned` of a device; `undefined` if the claim has none yet, or if it does not change, since
   * no container with exclusive CPUs was created or marked.
   */
  conditionOf(claimUid: string, device: string): StatusCondition | undefined {
    const { containers } = this.#claims.get(claimUid) ?? {};
    if (containers === undefined) return undefined;
    const all = [...containers].flatMap(([name, { devices, where, refusals }]) =>
      resultsOf(devices, device).map(({ result, text }) => {
        return { result, refusals, message: `container ${name}: ${where}, and ${text}` };
      }),
    );
    const marked = all.filter(({ result, refusals }) => refusals >= markedAfter && result !== 'aligned');
    const shown = marked.length > 0 ? marked : all.filter(({ refusals }) => refusals === 0);
    const worst = worstOf(shown.map(({ result }) => result));
    const [{ message } = { message: 'no container with exclusive CPUs has the device' }] = shown.filter(
      ({ result }) => result === worst,
    );
    const type = 'NumaAligned';
    if (shown.length === 0) {
      // The first refusals do not change the condition.
      if ([...containers.values()].some(({ refusals }) => refusals > 0)) return undefined;
      return { type, status: 'Unknown', reason: 'NotCompared', message };
    }
    const { status, reason } = conditions[worst];
    return { type, status, reason: marked.length > 0 ? 'ContainerRefused' : reason, message };
  }

  /** Defers a comparison. Above the limit, drops the oldest one, whose container must have ended. */
  #defer(pod: PodSandbox, container: Container): void {
    this.#deferred.set(container.id, [pod, container]);
    const [oldest] = this.#deferred.keys();
    if (this.#deferred.size > mostDeferred && oldest !== undefined) this.#deferred.delete(oldest);
  }

  /** Returns the prepared claims of a pod that a container uses. @throws StateError */
  #claimsOf({ uid }: PodSandbox, container: Container): StoredClaim[] {
    const { store, metadata } = this.#options;
    if (!metadata.isAnyUsedBy(container)) return [];
    return store.claimsOfPod(uid).filter(({ state, identity, devices }) => {
      return state === 'prepared' && devices.length > 0 && metadata.isUsedBy(identity, container);
    });
  }

  #compare(pod: PodSandbox, container: Container, claims: readonly StoredClaim[]): Comparison {
    const { metadata, numaNodes } = this.#options;
    const claimUids = new Set(claims.map(({ identity }) => identity.uid));
    const cpus = claims.length === 0 ? undefined : exclusiveCpus(pod, container, claimUids);
    if (cpus === undefined) return { devices: [], where: '' };
    const used = claims.flatMap((claim) => {
      const devices = claim.devices.filter(({ request }) =>
        metadata.isRequestUsedBy(claim.identity, request, container),
      );
      return devices.map((device) => ({ claim, device, node: device.offered.numaNode }));
    });
    const textOf = (device: StoredDevice, node: number | undefined) =>
      node === undefined
        ? `the NUMA node of device ${device.name} is unknown`
        : `device ${device.name} is on NUMA node ${node}`;
    const all = (resultOf: (node: number | undefined) => NumaResult) =>
      used.map(({ claim, device, node }) => ({ claim, device, result: resultOf(node), text: textOf(device, node) }));
    try {
      const nodes = numaNodes();
      const placement = placementOf(cpus, container.cpu.mems, nodes);
      if (placement === undefined) {
        const where = `its CPUs ${JSON.stringify(cpus)} or memory nodes ${JSON.stringify(container.cpu.mems)} are not lists`;
        return { devices: all(() => 'unknown'), where };
      }
      const others = used.map(({ node }) => node);
      return {
        devices: all((node) => compareNodes(node, others, placement, nodes)),
        where: describePlacement(placement),
      };
    } catch (error) {
      return { devices: all(() => 'unknown'), where: `the node's NUMA nodes cannot be read: ${explain(error)}` };
    }
  }

  #of({ identity }: StoredClaim, { id }: PodSandbox): ClaimComparison | undefined {
    const found = this.#claims.get(identity.uid);
    return found?.sandboxId === id ? found : undefined;
  }

  #refusalsOf(claim: StoredClaim, pod: PodSandbox, { name }: Container): number {
    return this.#of(claim, pod)?.containers.get(name)?.refusals ?? 0;
  }

  /** Returns the facts about a claim that metadata and status show, as text for comparing. */
  #shown({ identity: { uid }, devices }: StoredClaim): string {
    const { sandboxId = '' } = this.#claims.get(uid) ?? {};
    return JSON.stringify(
      devices.map(({ name }) => [this.alignmentOf(uid, sandboxId, name), this.conditionOf(uid, name)]),
    );
  }

  #note(claim: StoredClaim, pod: PodSandbox, { name }: Container, found: ContainerComparison): void {
    const devices = found.devices.filter((each) => each.claim === claim);
    const { uid } = claim.identity;
    const known = this.#of(claim, pod);
    if (known !== undefined) return void known.containers.set(name, { ...found, devices });
    // A claim without a container with exclusive CPUs gets no condition, unless an earlier pod of the claim had such a
    // container.
    const { podUid = pod.uid } = this.#claims.get(uid) ?? {};
    if (devices.length === 0 && podUid === pod.uid) return;
    for (const other of this.#claims.keys()) {
      if (this.#options.store.claim(other) === undefined) this.#claims.delete(other);
    }
    const containers = new Map([[name, { ...found, devices }]]);
    this.#claims.set(uid, { podUid: pod.uid, sandboxId: pod.id, containers });
  }

  #report(pod: PodSandbox, container: Container, claims: readonly StoredClaim[], { devices, where }: Comparison): void {
    for (const claim of claims) {
      const misaligned = devices.filter((each) => each.claim === claim && each.result === 'misaligned');
      if (misaligned.length === 0) continue;
      this.#options.onMisaligned(pod, claim.identity, `container ${container.name}: ${whereOf(misaligned, where)}`);
    }
  }
}

const conditions = {
  misaligned: { status: 'False', reason: 'OtherNumaNode' },
  unknown: { status: 'Unknown', reason: 'NumaNodeUnknown' },
  aligned: { status: 'True', reason: 'SameNumaNode' },
} as const;

function resultsOf(devices: readonly ComparedDevice[], name: string): ComparedDevice[] {
  return devices.filter(({ device }) => device.name === name);
}

function whereOf(devices: readonly ComparedDevice[], where: string): string {
  return `${where}, and ${devices.map(({ text }) => text).join(', ')}`;
}

function refusal({ name }: Container, refused: readonly ComparedDevice[], where: string): SandboxError {
  const claims = [...new Set(refused.map(({ claim }) => claimName(claim.identity)))];
  const message = `container ${name} cannot start with claim ${claims.join(', ')}, which has numa: require: ${whereOf(refused, where)}`;
  const code = refused.some(({ result }) => result === 'misaligned') ? 'numa-mismatch' : 'numa-unknown';
  return new SandboxError(code, message, { claim: claims[0], retriable: true, hint: refusalHint });
}
