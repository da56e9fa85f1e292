import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import type { ErrorDetails } from '../../lib/errors.ts';
import { DriverError, type DriverErrorCode } from './driver-error.ts';

/**
 * The error for a claim that the driver refuses.
 * @param problem follows the name of the claim: ` may not set driver`
 */
export function refusal(
  { identity }: AllocatedClaim,
  code: DriverErrorCode,
  problem: string,
  details: Omit<ErrorDetails, 'claim'>,
): DriverError {
  const claim = claimName(identity);
  return new DriverError(code, `claim ${claim}${problem}`, { claim, ...details });
}
