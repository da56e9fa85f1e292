import { intercept } from '../../lib/intercept.ts';
import type { RatesRefusal } from '../../node/inventory/index.ts';
import { SriovError } from '../../node/sriov/index.ts';
import type { VfControl } from './host-vfs.ts';

/**
 * Makes errors about guaranteed rates name the inventory policy: the authors of class and claim have not set these rates.
 * @param onRefused called when a card has refused the rates of a VF; returns the field of the inventory policy that requests
 * the rates, `undefined` if none does
 */
export function namingPolicy(
  control: VfControl,
  onRefused: (refusal: RatesRefusal) => Promise<string | undefined>,
): VfControl {
  return intercept<VfControl>(control, (call) => {
    if (call.name !== 'configure') return call.next();
    const [{ pciAddress }, { vf: { rate = {} } = {} }] = call.args;
    return call.next().catch(async (error: unknown) => {
      if (!(error instanceof SriovError) || !error.properties.includes('rate')) throw error;
      const isUnsupported = error.code === 'property-unsupported';
      const because = error.retriable ? 'temporary' : isUnsupported ? 'unsupported' : 'value';
      const field = await onRefused({ pciAddress, rate, because });
      if (field === undefined) throw error;
      const { code, message, cause, device, properties, retriable } = error;
      const rates = field.endsWith('.burst') ? 'minimum rates' : 'rates';
      const hint = `${field} of the inventory policy needs ${rates}, which the card does not take: change that rule, then delete the pod, so that it is scheduled anew`;
      throw new SriovError(code, message, { cause, device, properties, retriable, hint });
    });
  });
}
