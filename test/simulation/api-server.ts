import { KubeError } from '../../src/framework/kube/errors.ts';
import type { ClaimObject, ClaimReader } from '../../src/framework/kubeletplugin/index.ts';
import type { ClaimPlan } from './plan.ts';
import { type Process, SimulatedClock, type Simulator } from './simulator.ts';

export const driverName = 'sriov.netdra.dev';
export const nodeName = 'node-1';

/** A claim as allocated by the scheduler. */
export interface SimClaim {
  uid: string;
  name: string;
  /** Its allocated VFs, one for each request; with `adminAccess` it only observes them. None: not allocated. */
  devices: { request: string; device: string; adminAccess: boolean }[];
  plan: ClaimPlan;
  /** UIDs of pods. */
  reservedFor: string[];
  isTemplate: boolean;
}

export const namespace = 'default';

/** The claims of the cluster. */
export class ApiServer {
  readonly claims = new Map<string, SimClaim>();
  readonly #simulator: Simulator;
  /** Existing pods. */
  pods: readonly { uid: string; isDeleted: boolean }[] = [];
  /** It does not answer before this time. */
  downUntilMs = 0;
  /** Share of requests that fail with an error. */
  errorRate = 0;

  constructor(simulator: Simulator) {
    this.#simulator = simulator;
  }

  byUid(uid: string): SimClaim | undefined {
    return [...this.claims.values()].find((claim) => claim.uid === uid);
  }

  reader(process: Process): ClaimReader {
    return {
      readClaim: async (_namespace, name, signal) => {
        await this.#answer(process, `about claim ${name}`, signal);
        const claim = this.claims.get(name);
        if (claim === undefined) throw new KubeError('api-not-found', `claim ${name} not found`);
        return toObject(claim);
      },
    };
  }

  async isPodWanted(process: Process, uid: string, signal: AbortSignal): Promise<boolean> {
    await this.#answer(process, `about ${uid}`, signal);
    return this.pods.some((pod) => pod.uid === uid && !pod.isDeleted);
  }

  async #answer(process: Process, what: string, signal: AbortSignal): Promise<void> {
    const { tape, nowMs } = this.#simulator;
    const delayMs = Math.max(tape.delay(3, 3_000), this.downUntilMs - nowMs);
    await new SimulatedClock(this.#simulator, process).sleep(delayMs, signal);
    process.point(`answer ${what}`);
    if (tape.chance(this.errorRate, 'api')) throw new KubeError('api-unreachable', 'the API server is away');
  }
}

function toObject({ uid, name, devices, plan: { config }, reservedFor, isTemplate }: SimClaim): ClaimObject {
  const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...config };
  return {
    metadata: {
      name,
      namespace,
      uid,
      ...(isTemplate ? { annotations: { 'resource.kubernetes.io/pod-claim-name': 'net' } } : {}),
    },
    spec: {},
    status: {
      ...(devices.length === 0 ? {} : { allocation: allocationOf(devices, parameters) }),
      reservedFor: reservedFor.map((pod) => ({ resource: 'pods', name: pod, uid: pod })),
    },
  };
}

function allocationOf(devices: SimClaim['devices'], parameters: object) {
  return {
    devices: {
      results: devices.map(({ request, device, adminAccess }) => ({
        driver: driverName,
        pool: nodeName,
        request,
        device,
        ...(adminAccess ? { adminAccess } : {}),
      })),
      config: [{ source: 'FromClass', opaque: { driver: driverName, parameters } }],
    },
  };
}
