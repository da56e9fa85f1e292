import { toError } from '../../lib/errors.ts';
import { type ClaimIdentity, claimName } from '../metadata/index.ts';
import { KubeletPluginError } from './errors.ts';
import type {
  AllocatedClaim,
  LastStep,
  PreparedClaim,
  PreparedDevice,
  PrepareResult,
  UnpreparedClaim,
  UnprepareResult,
} from './plugin.ts';

/** A driver's results for one call, by claim UID. */
export type Results<Result> = ReadonlyMap<string, Result>;

/**
 * Returns the error of a claim that was not prepared or unprepared, from the driver's result. Checks values, not keys:
 * TypeScript accepts `{ devices, error: undefined }`, and drivers in JavaScript are unchecked.
 * @returns `undefined` for success, and without a result
 */
export function failureOf(result: PrepareResult | UnprepareResult | null): Error | undefined {
  if (result === undefined || result === null) return undefined;
  if (typeof result !== 'object' || result instanceof Error) return toError(result);
  const { devices, error, discard } = result as { devices?: unknown; error?: unknown; discard?: unknown };
  if (error !== undefined && error !== null) return toError(error);
  if (Array.isArray(devices) || typeof discard === 'function') return undefined;
  return broken('the driver gave a result with neither an error nor a list of devices');
}

/** Returns whether a driver has prepared, or unprepared, a claim. A claim without a result counts as failed. */
export function hasSucceeded(results: Results<PrepareResult | UnprepareResult>, { uid }: ClaimIdentity): boolean {
  return results.has(uid) && failureOf(results.get(uid)) === undefined;
}

/**
 * Returns a driver's result for a claim that it prepared. @throws the driver's error; KubeletPluginError `driver-contract` for
 * a missing or invalid result
 */
export function preparedIn(results: Results<PrepareResult>, { identity }: AllocatedClaim): PreparedClaim {
  const result = results.get(identity.uid);
  const failure = failureOf(result);
  if (failure !== undefined) throw failure;
  if (result?.devices === undefined) throw noResult();
  for (const device of result.devices) checkTypes(identity, device);
  return result;
}

/** Returns the last step of an unprepared claim, if any. @throws as `preparedIn` */
export function unpreparedIn(results: Results<UnprepareResult>, { uid }: ClaimIdentity): Partial<UnpreparedClaim> {
  const result = results.get(uid);
  const failure = failureOf(result);
  if (failure !== undefined) throw failure;
  if (!results.has(uid)) throw noResult();
  // JavaScript drivers return `null`, too.
  return (result as UnpreparedClaim | null | undefined) ?? {};
}

/**
 * Runs the last step of a driver's result, if it has one. @throws what the step throws; KubeletPluginError `driver-contract` if
 * it returned a promise, whose later rejection would end the process
 */
export function runLastStep<Name extends string>(
  claim: ClaimIdentity,
  result: { [name in Name]?: LastStep },
  name: Name,
): void {
  const returned: unknown = result[name]?.();
  if (typeof (returned as PromiseLike<unknown> | undefined)?.then !== 'function') return;
  Promise.resolve(returned).catch(() => undefined);
  const message = `the driver's ${name} returned a promise for claim ${claimName(claim)}: it has to be synchronous`;
  throw broken(message, claim);
}

/** Checks the type of a driver's results. @throws KubeletPluginError `driver-contract` if the driver did not return a Map */
export function checkResults<Result>(results: Results<Result>): Results<Result> {
  const methods = (results ?? {}) as Partial<Results<Result>>;
  if (['get', 'has', 'keys'].every((name) => typeof methods[name as 'get'] === 'function')) return results;
  throw broken('the driver did not return a Map with a result for each claim');
}

/** Checks the types in a device: one wrong type would make the encoding of the whole answer fail. */
function checkTypes(claim: ClaimIdentity, device: PreparedDevice): void {
  const refuse = (what: string) =>
    broken(`the driver returned a wrong result for claim ${claimName(claim)}: ${what}`, claim);
  if (typeof device !== 'object' || device === null) throw refuse('a device is not an object');
  for (const field of ['requests', 'cdiDeviceIds'] as const) {
    const list: unknown = device[field];
    if (Array.isArray(list) && list.every((entry) => typeof entry === 'string')) continue;
    throw refuse(`${field} of device ${String(device.deviceName)} is not a list of strings`);
  }
  for (const field of ['poolName', 'deviceName', 'shareId'] as const) {
    const text: unknown = device[field];
    if (typeof text === 'string' || (field === 'shareId' && text === undefined)) continue;
    throw refuse(`${field} of a device is not a string`);
  }
  const metadata: unknown = device.metadata;
  const isObject = typeof metadata === 'object' && metadata !== null;
  if (metadata !== undefined && metadata !== 'deferred' && !isObject)
    throw refuse(`metadata of device ${device.deviceName} is neither an object nor 'deferred'`);
}

function noResult(): KubeletPluginError {
  return broken('the driver gave no result');
}

function broken(message: string, claim?: ClaimIdentity): KubeletPluginError {
  return new KubeletPluginError('driver-contract', message, { claim: claim && claimName(claim) });
}
