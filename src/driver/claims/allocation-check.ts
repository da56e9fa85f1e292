import { type DeviceClass, isKubeError, type KubeErrorCode } from '../../framework/kube/index.ts';
import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import { classOf } from '../api/class-rules.ts';
import { entriesFor } from '../api/config.ts';
import { areEqual, withoutRepeats } from '../api/parameters.ts';
import { DriverError, refusal } from '../model/index.ts';
import type { ClassReader } from './device-classes.ts';

const hints: Partial<Record<KubeErrorCode, string>> = {
  'api-not-found': 'create it again, or delete the pod and its claim',
  'api-forbidden': 'the driver needs verbs get, list and watch for deviceclasses',
};

/**
 * Compares the configuration in an allocation with its sources: the class's part with the DeviceClass, the claim's part with
 * its specification. Every account that can write the status of claims can change an allocation, and the configuration of a
 * class decides what runs as root.
 * @throws DriverError `allocation-mismatch`, `class-unreadable`
 */
export async function checkAllocation(
  driver: string,
  classes: ClassReader,
  claim: AllocatedClaim,
  signal: AbortSignal,
): Promise<void> {
  const requests = new Set(claim.results.filter((result) => result.driver === driver).map(({ request }) => request));
  const source = 'FromClaim' as const;
  const specified = (claim.object.spec.devices?.config ?? []).map((entry) => ({ ...entry, source }));
  for (const request of requests) {
    const className = classOf(claim, request);
    if (className === undefined) throw mismatch(claim, `has no request ${request} in its specification`);
    const ofClass = entriesFor(driver, claim, request, 'FromClass');
    const isOf = (deviceClass: DeviceClass | undefined) =>
      deviceClass !== undefined && areEqual(ofClass, configOf(driver, deviceClass));
    // The class may have just been created or changed, so it is read again before a claim is refused.
    if (!isOf(classes.known(className)) && !isOf(await read(classes, claim, className, signal))) {
      throw mismatch(claim, `has a configuration of request ${request} that DeviceClass ${className} does not have`);
    }
    const ofClaim = entriesFor(driver, claim, request, 'FromClaim');
    if (!areEqual(ofClaim, entriesFor(driver, claim, request, 'FromClaim', specified))) {
      throw mismatch(claim, `has a configuration of request ${request} that its specification does not have`);
    }
  }
}

function configOf(driver: string, { spec }: DeviceClass): unknown[] {
  const own = (spec.config ?? []).flatMap(({ opaque }) => (opaque?.driver === driver ? [opaque.parameters] : []));
  return withoutRepeats(own);
}

async function read(
  classes: ClassReader,
  claim: AllocatedClaim,
  name: string,
  signal: AbortSignal,
): Promise<DeviceClass> {
  try {
    return await classes.read(name, signal);
  } catch (cause) {
    const problem = isKubeError(cause, 'api-not-found') ? 'does not exist any more' : 'cannot be read';
    const details = { cause, retriable: true, hint: isKubeError(cause) ? hints[cause.code] : undefined };
    throw refusal(claim, 'class-unreadable', `: DeviceClass ${name} ${problem}`, details);
  }
}

function mismatch(claim: AllocatedClaim, what: string): DriverError {
  const subject = claimName(claim.identity);
  const hint =
    'if the class was changed since the claim was allocated, delete the pod and its claim; otherwise find out which accounts may write the status of claims';
  const message = `the allocation of claim ${subject} ${what}`;
  return new DriverError('allocation-mismatch', message, { claim: subject, hint });
}
