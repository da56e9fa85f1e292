import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/document/document.ts';
import type { ErrorDetails } from '../../lib/errors.ts';
import { DriverError, type DriverErrorCode } from './driver-error.ts';

/**
 * Returns the error for a claim that the driver refuses.
 * @param problem text that follows the name of the claim, such as ` may not set driver`
 */
export function refusal(
  { identity }: AllocatedClaim,
  code: DriverErrorCode,
  problem: string,
  details: ErrorDetails,
): DriverError {
  const claim = claimName(identity);
  return new DriverError(code, `claim ${claim}${problem}`, { claim, ...details });
}

/** Returns the error for an invalid VFConfig. @param problems texts of the form `field: what is allowed` */
export function invalidConfig(claim: AllocatedClaim, problems: string[], origin = ''): DriverError {
  const subject = claimName(claim.identity);
  const message = `invalid VFConfig for claim ${subject}${origin}: ${problems.join('; ')}`;
  return new DriverError('config-invalid', message, { claim: subject });
}
