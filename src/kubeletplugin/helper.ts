import { join } from 'node:path';
import type { Clock } from '../clock.ts';
import { explain } from '../errors.ts';
import { KeyedMutex } from '../keyed-mutex.ts';
import type { Logger } from '../logger.ts';
import { baseRequest, type ClaimIdentity, type ClaimMetadata, type DeviceMetadata } from '../metadata/index.ts';
import { type ClaimReader, fetchClaims } from './claims.ts';
import { createDraService, type DraCalls, draVersions, type WireDevice } from './dra-service.ts';
import { KubeletPluginError } from './errors.ts';
import { serveGrpc } from './grpc-server.ts';
import type { AllocatedClaim, DraPlugin, PreparedDevice, PrepareResult } from './plugin.ts';
import { resolvePreparedClaim } from './prepared-claim.ts';
import { createRegistrationService, type RegistrationStatus } from './registration.ts';

/** The kubelet waits 45 s for an answer; ours comes earlier, so that it is ours that the user reads. */
const callBudgetMs = 42_000;

export interface KubeletPluginOptions {
  driver: string;
  /** The driver's directory below the kubelet's `plugins`; the DRA socket `dra.sock` lies in it. */
  dataDir: string;
  /** The kubelet's `plugins_registry`. */
  registryDir: string;
  claims: ClaimReader;
  /** Absent: device metadata is off, no CDI specs and no files. */
  metadata?: ClaimMetadata;
  clock: Clock;
  logger: Logger;
  onRegistration?: (status: RegistrationStatus) => void;
}

/** What a driver calls when it knows more about the devices of a request. Source: KEP-5304 `MetadataUpdater`. */
export interface MetadataUpdater {
  /**
   * Replaces the metadata of a request's devices; the file appears with the first call.
   * @param request base name or full `request/subrequest`
   * @returns the generation now in the file
   * @throws MetadataError `metadata-not-prepared` if this driver has not prepared just that
   */
  updateRequestMetadata(claim: ClaimIdentity, request: string, devices: DeviceMetadata[]): Promise<number>;
}

export interface KubeletPluginHelper extends MetadataUpdater, AsyncDisposable {}

/**
 * Serves a driver to the kubelet: the DRA socket first, then the registration socket that leads to it.
 * @throws KubeletPluginError `socket-unavailable`
 */
export async function startKubeletPlugin(
  plugin: DraPlugin,
  options: KubeletPluginOptions,
): Promise<KubeletPluginHelper> {
  const { driver, logger } = options;
  const endpoint = join(options.dataDir, 'dra.sock');
  const calls = new PluginCalls(plugin, options);
  await using stack = new AsyncDisposableStack();
  stack.use(
    await serveGrpc(
      endpoint,
      draVersions.map((version) => createDraService(version, calls)),
    ),
  );
  const registration = createRegistrationService({
    driver,
    endpoint,
    services: draVersions.map((version) => `${version}.DRAPlugin`),
    onStatus: (status) => {
      if (status.registered) logger.info({ driver, endpoint }, 'registered with the kubelet');
      else logger.error({ driver, endpoint, error: status.error }, 'the kubelet refused the registration');
      options.onRegistration?.(status);
    },
  });
  stack.use(await serveGrpc(join(options.registryDir, `${driver}-reg.sock`), [registration]));
  const owned = stack.move();
  return {
    updateRequestMetadata: (claim, request, devices) => calls.updateRequestMetadata(claim, request, devices),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** The kubelet's calls, between the wire and the driver. */
class PluginCalls implements DraCalls, MetadataUpdater {
  readonly #plugin: DraPlugin;
  readonly #options: KubeletPluginOptions;
  /** One prepare or unprepare at a time, as drivers expect it from the Go helper; claims are fetched outside. */
  readonly #serial = new KeyedMutex();

  constructor(plugin: DraPlugin, options: KubeletPluginOptions) {
    this.#plugin = plugin;
    this.#options = options;
  }

  async nodePrepareResources(refs: ClaimIdentity[]) {
    using deadline = this.#options.clock.deadline(callBudgetMs);
    const { signal } = deadline;
    const claims = await failWith('get resource claims', () => fetchClaims(this.#options.claims, refs, signal));
    return await this.#serial.run('', async () => {
      const results = await failWith('prepare resource claims', () =>
        this.#plugin.prepareResourceClaims(claims, { signal }),
      );
      const answers = new Map<string, { devices: WireDevice[]; error?: string }>();
      for (const claim of claims) {
        answers.set(claim.identity.uid, await this.#answer(claim, results.get(claim.identity.uid)));
      }
      return answers;
    });
  }

  async nodeUnprepareResources(refs: ClaimIdentity[]) {
    using deadline = this.#options.clock.deadline(callBudgetMs);
    const { signal } = deadline;
    return await this.#serial.run('', async () => {
      const results = await failWith('unprepare resource claims', () =>
        this.#plugin.unprepareResourceClaims(refs, { signal }),
      );
      const answers = new Map<string, { error?: string }>();
      for (const claim of refs) answers.set(claim.uid, await this.#cleanUp(claim, results));
      return answers;
    });
  }

  async updateRequestMetadata(claim: ClaimIdentity, request: string, devices: DeviceMetadata[]): Promise<number> {
    const { metadata } = this.#options;
    if (metadata === undefined) throw new KubeletPluginError('driver-contract', 'device metadata is not enabled');
    return await metadata.update(claim, request, devices);
  }

  async #answer(claim: AllocatedClaim, result: PrepareResult | undefined) {
    const log = { claim: subject(claim.identity), claimUid: claim.identity.uid };
    try {
      if (result === undefined) throw new KubeletPluginError('driver-contract', 'the driver gave no result');
      if ('error' in result) throw result.error;
      const devices = await this.#layDown(claim, result.devices);
      this.#options.logger.info({ ...log, devices: devices.length }, 'claim prepared');
      return { devices };
    } catch (error) {
      this.#options.logger.error({ ...log, err: error }, 'claim not prepared');
      return { devices: [], error: explain(error) };
    }
  }

  /** Writes CDI specs and what is known of the metadata; a failure here is the claim's failure. */
  async #layDown(claim: AllocatedClaim, returned: PreparedDevice[]): Promise<WireDevice[]> {
    const { metadata, driver } = this.#options;
    const prepared = resolvePreparedClaim(driver, claim, returned);
    const ids = metadata === undefined ? new Map() : await metadata.prepare(prepared.record, prepared.contents);
    return prepared.devices.map((device) => {
      const requestNames = [...new Set(device.requests.map(baseRequest))];
      // A request's mount is needed once: its first device carries the id.
      const served = requestNames.length > 0 ? requestNames : [...ids.keys()];
      const mounts = served.flatMap((request) => {
        const id: string | undefined = ids.get(request);
        ids.delete(request);
        return id === undefined ? [] : [id];
      });
      const { poolName, deviceName, shareId } = device;
      const cdiDeviceIds = [...device.cdiDeviceIds, ...mounts];
      return { requestNames, poolName, deviceName, cdiDeviceIds, ...(shareId === undefined ? {} : { shareId }) };
    });
  }

  async #cleanUp(claim: ClaimIdentity, results: ReadonlyMap<string, Error | undefined>): Promise<{ error?: string }> {
    const log = { claim: subject(claim), claimUid: claim.uid };
    try {
      if (!results.has(claim.uid)) throw new KubeletPluginError('driver-contract', 'the driver gave no result');
      const error = results.get(claim.uid);
      if (error !== undefined) throw error;
      await failWith('clean up device metadata', async () => this.#options.metadata?.unprepare(claim));
      this.#options.logger.info(log, 'claim unprepared');
      return {};
    } catch (error) {
      this.#options.logger.error({ ...log, err: error }, 'claim not unprepared');
      return { error: explain(error) };
    }
  }
}

function subject(claim: ClaimIdentity): string {
  return `${claim.namespace}/${claim.name}`;
}

/** Prefixes whatever goes wrong with the step, in the Go helper's words. */
async function failWith<T>(step: string, task: () => Promise<T>): Promise<T> {
  try {
    return await task();
  } catch (error) {
    throw new Error(step, { cause: error });
  }
}
