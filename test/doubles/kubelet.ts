import type { ResourceV1ResourceClaim, V1Pod } from '@kubernetes/client-node';
import {
  type ClaimInfo,
  ClaimManager,
  cdiDevicesOf,
  driversOf,
  type NeededClaim,
  podClaimsOf,
} from './kubelet-claims.ts';
import { type DraClient, formatRpcError } from './kubelet-dra-client.ts';
import { KubeletPlugins, type KubeletPluginsOptions, type Plugin } from './kubelet-plugins.ts';
import type { RegistrationAttempt } from './kubelet-registry.ts';

export interface KubeletOptions extends KubeletPluginsOptions {
  /** @throws if it does not exist or the API server does not answer */
  getClaim: (namespace: string, name: string) => Promise<ResourceV1ResourceClaim>;
}

/** A requirement of the pod's containers failed; `message` is what the kubelet writes into the pod's event. */
export class KubeletError extends Error {
  override readonly name = 'KubeletError';
}

/**
 * The kubelet's part in dynamic resource allocation: finds drivers through their registration sockets, has claims of
 * pods prepared and unprepared, and knows the CDI devices of each container. It does not run pods: call
 * `prepare` before the sandbox is created, pass `cdiDevicesForContainer` to the runtime, call `unprepare` at the end.
 *
 * For tests that inspect each call, or start a driver hundreds of times. It is a well-behaved kubelet, but not a
 * reference: what the real one checks and does is shown in e2e/cluster.
 */
export class Kubelet implements Disposable {
  readonly #options: KubeletOptions;
  readonly #plugins: KubeletPlugins;
  readonly #claims = new ClaimManager<Plugin>({
    find: (driver) => this.#plugins.get(driver),
    prepare: async ({ client }, claims) => {
      const answer = await client.nodePrepareResources(claims).catch(withMethod('NodePrepareResources'));
      return new Map(Object.entries(answer.claims));
    },
    unprepare: async ({ client }, claims) => {
      const answer = await client.nodeUnprepareResources(claims).catch(withMethod('NodeUnprepareResources'));
      return new Map(Object.entries(answer.claims));
    },
  });

  private constructor(options: KubeletOptions) {
    this.#options = options;
    this.#plugins = new KubeletPlugins(options);
  }

  /** @throws if the registry directory does not exist */
  static async start(options: KubeletOptions): Promise<Kubelet> {
    const kubelet = new Kubelet(options);
    await kubelet.#plugins.start();
    return kubelet;
  }

  /** Every attempt to register a socket, including failed ones. */
  get attempts(): readonly RegistrationAttempt[] {
    return this.#plugins.attempts;
  }

  /** The registered instances of a driver, or of all drivers, oldest first. */
  plugins(driver?: string): Plugin[] {
    return this.#plugins.list(driver);
  }

  /** Waits until a driver is registered and its connection is up. */
  async waitForDriver(driver: string, timeoutMs = 5000): Promise<Plugin> {
    return await this.until(() => this.plugins(driver).findLast(({ isConnected }) => isConnected), timeoutMs);
  }

  /** Waits for a condition on registrations or connections. */
  until<T>(condition: () => T | undefined | false, timeoutMs = 5000): Promise<T> {
    return this.#plugins.until(condition, timeoutMs);
  }

  /** The connection to a driver, for calls besides `prepare` and `unprepare`. @throws if it is not registered */
  client(driver: string): DraClient {
    return this.#plugins.get(driver).client;
  }

  /**
   * Has all claims of a pod prepared that are not prepared yet: one call for each driver, with all its claims.
   * @throws KubeletError
   */
  async prepare(pod: V1Pod): Promise<void> {
    try {
      await this.#claims.prepare(pod.metadata?.uid ?? '', await this.#fetchClaims(pod));
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      throw new KubeletError(`prepare dynamic resources: ${message}`, { cause });
    }
  }

  /**
   * Has the claims unprepared that no other pod uses. After an error all drivers are called again the next time,
   * including those that had succeeded.
   * @throws KubeletError
   */
  async unprepare(pod: V1Pod): Promise<void> {
    const { namespace = '', uid = '' } = pod.metadata ?? {};
    const names = podClaimsOf(pod).flatMap(({ claimName }) => claimName ?? []);
    const infos = names.flatMap((name) => this.#claims.get(namespace, name) ?? []);
    const last = infos.filter(({ podUids }) => podUids.has(uid) && podUids.size === 1);
    for (const info of infos) if (!last.includes(info)) info.podUids.delete(uid);
    try {
      await this.#claims.unprepare(last);
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      throw new KubeletError(`unprepare dynamic resources: ${message}`, { cause });
    }
  }

  /** The kubelet's record of a claim; `undefined` before `prepare` and after `unprepare`. */
  claimInfo(namespace: string, name: string): Readonly<ClaimInfo> | undefined {
    return this.#claims.get(namespace, name);
  }

  /** All CDI names for the CreateContainer call, in the order of the container's claims. */
  cdiDevicesForContainer(pod: V1Pod, containerName: string): string[] {
    const containers = [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])];
    const uses = containers.find(({ name }) => name === containerName)?.resources?.claims ?? [];
    const podClaims = podClaimsOf(pod);
    return uses.flatMap(({ name, request }) => {
      const claimName = podClaims.find(({ podClaimName }) => podClaimName === name)?.claimName;
      const info = this.#claims.get(pod.metadata?.namespace ?? '', claimName ?? '');
      if (info === undefined) throw new KubeletError(`unable to get claim info for claim ${claimName}`);
      return cdiDevicesOf(info, request);
    });
  }

  [Symbol.dispose](): void {
    this.#plugins[Symbol.dispose]();
  }

  /** The pod's claims, all checked before any of them is changed. */
  async #fetchClaims(pod: V1Pod): Promise<NeededClaim[]> {
    const claims: NeededClaim[] = [];
    for (const { claimName } of podClaimsOf(pod)) {
      if (claimName === undefined) continue;
      const claim = await this.#options.getClaim(pod.metadata?.namespace ?? '', claimName).catch((cause) => {
        throw new Error(`fetch ResourceClaim ${claimName}: ${cause instanceof Error ? cause.message : cause}`, {
          cause,
        });
      });
      const drivers = driversOf(claim);
      for (const driver of drivers) this.#plugins.get(driver);
      const { namespace = '', name = '', uid = '' } = claim.metadata ?? {};
      claims.push({ namespace, name, uid, drivers });
    }
    return claims;
  }
}

function withMethod(method: string): (cause: unknown) => never {
  return (cause) => {
    throw new Error(`${method}: ${formatRpcError(cause)}`, { cause });
  };
}
