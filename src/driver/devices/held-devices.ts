import { defined } from '../../lib/defined.ts';
import type { HeldDevices, HeldFacts } from '../../node/inventory/index.ts';
import type { StoredClaim } from '../state/index.ts';

/** Original state of the devices that claims hold, as far as their claims have changed it. */
export function heldDevices(claims: readonly Pick<StoredClaim, 'devices'>[]): HeldDevices {
  const devices = claims.flatMap((claim) => claim.devices);
  return new Map(
    devices.map(({ pciAddress, before, attachment, offered }): [string, HeldFacts] => {
      const { name: interfaceName, altNames, hardwareAddress, mtuBytes } = { ...attachment?.host, ...before?.link };
      const facts = defined({ offered, interfaceName, altNames, hardwareAddress, mtuBytes });
      return [pciAddress, before === undefined ? facts : { driver: before.driver, ...facts }];
    }),
  );
}
