import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { isTooDeep, maxJsonDepth } from '../../lib/json-depth.ts';
import { invalidConfig } from '../model/index.ts';

/**
 * Checks the nesting depth of the driver's opaque parameters, in the specification of a claim and in its allocation. Must be
 * called before any code walks the parameters.
 * @throws DriverError `config-invalid`
 */
export function checkNesting(driver: string, claim: AllocatedClaim): void {
  const { spec, status } = claim.object;
  const entries = [...(spec.devices?.config ?? []), ...(status?.allocation?.devices?.config ?? [])];
  if (entries.some(({ opaque }) => opaque?.driver === driver && isTooDeep(opaque.parameters))) {
    throw invalidConfig(claim, [`parameters: must be nested at most ${maxJsonDepth} levels deep`]);
  }
}
