import type { ResourceV1ResourceClaim, V1Pod } from '@kubernetes/client-node';
import { ClaimCache, type ClaimInfo, cdiDevicesOf, driversOf, podClaimsOf } from './kubelet-claims.ts';
import { type DraClient, formatRpcError, type WireClaim } from './kubelet-dra-client.ts';
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
  readonly #cache = new ClaimCache();
  #plugins: KubeletPlugins;

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

  /** Every attempt to register a socket since the last start, including failed ones. */
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
      await this.#prepare(pod);
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
    const names = podClaimsOf(pod).flatMap(({ claimName }) => claimName ?? []);
    const infos = names.flatMap((name) => this.#cache.get(pod.metadata?.namespace ?? '', name) ?? []);
    await this.#unprepare(pod.metadata?.uid ?? '', infos);
  }

  /** The kubelet's record of a claim; `undefined` before `prepare` and after `unprepare`. */
  claimInfo(namespace: string, name: string): Readonly<ClaimInfo> | undefined {
    return this.#cache.get(namespace, name);
  }

  /** All CDI names for the CreateContainer call, in the order of the container's claims. */
  cdiDevicesForContainer(pod: V1Pod, containerName: string): string[] {
    const containers = [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])];
    const uses = containers.find(({ name }) => name === containerName)?.resources?.claims ?? [];
    const podClaims = podClaimsOf(pod);
    return uses.flatMap(({ name, request }) => {
      const claimName = podClaims.find(({ podClaimName }) => podClaimName === name)?.claimName;
      const info = this.#cache.get(pod.metadata?.namespace ?? '', claimName ?? '');
      if (info === undefined) throw new KubeletError(`unable to get claim info for claim ${claimName}`);
      return cdiDevicesOf(info, request);
    });
  }

  /** Restarts the process: registrations and `prepared` are forgotten, devices are not. */
  async restart(): Promise<void> {
    this.#plugins[Symbol.dispose]();
    this.#cache.restart();
    this.#plugins = new KubeletPlugins(this.#options);
    await this.#plugins.start();
  }

  [Symbol.dispose](): void {
    this.#plugins[Symbol.dispose]();
  }

  async #prepare(pod: V1Pod): Promise<void> {
    const claims = await this.#fetchClaims(pod);
    const batches = new Map<Plugin, ClaimInfo[]>();
    const infos = claims.map((claim) => {
      const info = this.#cache.getOrAdd(claim);
      info.podUids.add(pod.metadata?.uid ?? '');
      for (const driver of info.prepared ? [] : info.devices.keys())
        addToBatch(batches, this.#plugins.get(driver), info);
      return info;
    });
    for (const [plugin, batch] of batches) await this.#callPrepare(plugin, batch);
    for (const info of infos) info.prepared = true;
  }

  /** The pod's claims, all checked before any of them is changed. */
  async #fetchClaims(pod: V1Pod): Promise<ResourceV1ResourceClaim[]> {
    const claims: ResourceV1ResourceClaim[] = [];
    for (const { claimName } of podClaimsOf(pod)) {
      if (claimName === undefined) continue;
      const claim = await this.#options.getClaim(pod.metadata?.namespace ?? '', claimName).catch((cause) => {
        throw new Error(`fetch ResourceClaim ${claimName}: ${cause instanceof Error ? cause.message : cause}`, {
          cause,
        });
      });
      for (const driver of driversOf(claim)) this.#plugins.get(driver);
      claims.push(claim);
    }
    return claims;
  }

  async #callPrepare({ driver, client }: Plugin, batch: ClaimInfo[]): Promise<void> {
    const method = 'NodePrepareResources';
    const response = await client.nodePrepareResources(batch.map(toWire)).catch((cause) => {
      throw new Error(`${method}: ${formatRpcError(cause)}`, { cause });
    });
    for (const [uid, result] of Object.entries(response.claims)) {
      const info = checkResult(method, batch, uid, result.error);
      // Appended to existing devices, even when the claim is prepared for the second time.
      info.devices.get(driver)?.push(...result.devices);
    }
    checkCount(method, batch, response.claims);
  }

  async #unprepare(podUid: string, infos: ClaimInfo[]): Promise<void> {
    try {
      const batches = new Map<Plugin, ClaimInfo[]>();
      const last = infos.filter((info) => info.podUids.has(podUid) && info.podUids.size === 1);
      for (const info of infos) if (!last.includes(info)) info.podUids.delete(podUid);
      for (const info of last) {
        for (const driver of info.devices.keys()) addToBatch(batches, this.#plugins.get(driver), info);
      }
      for (const [plugin, batch] of batches) await this.#callUnprepare(plugin, batch);
      for (const info of last) this.#cache.delete(info);
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      throw new KubeletError(`unprepare dynamic resources: ${message}`, { cause });
    }
  }

  async #callUnprepare({ client }: Plugin, batch: ClaimInfo[]): Promise<void> {
    const method = 'NodeUnprepareResources';
    const response = await client.nodeUnprepareResources(batch.map(toWire)).catch((cause) => {
      throw new Error(`${method}: ${formatRpcError(cause)}`, { cause });
    });
    for (const [uid, { error }] of Object.entries(response.claims)) checkResult(method, batch, uid, error);
    checkCount(method, batch, response.claims);
  }
}

function addToBatch(batches: Map<Plugin, ClaimInfo[]>, plugin: Plugin, info: ClaimInfo): void {
  batches.set(plugin, [...(batches.get(plugin) ?? []), info]);
}

function toWire({ namespace, uid, name }: ClaimInfo): WireClaim {
  return { namespace, uid, name };
}

function checkResult(method: string, batch: ClaimInfo[], uid: string, error: string): ClaimInfo {
  const info = batch.find((candidate) => candidate.uid === uid);
  if (info === undefined) throw new Error(`${method} returned result for unknown claim UID ${uid}`);
  if (error !== '') throw new Error(`${method} failed for ResourceClaim ${info.name}: ${error}`);
  return info;
}

/** The kubelet only counts the entries in the answer. */
function checkCount(method: string, batch: ClaimInfo[], results: object): void {
  const skipped = batch.length - Object.keys(results).length;
  if (skipped !== 0) throw new Error(`${method} skipped ${skipped} ResourceClaims`);
}
