import { defined } from '../../lib/defined.ts';
import type { HeldDevices, HeldFacts } from '../../node/inventory/index.ts';
import type { StoredClaim } from '../state/index.ts';

/** Those of the stored claims, found anew only when a claim has changed: each tick of the scans needs them several times. */
export function heldBy(store: { claims(): readonly StoredClaim[] }): () => HeldDevices {
  let known: { claims: readonly StoredClaim[]; held: HeldDevices } | undefined;
  return () => {
    const claims = store.claims();
    if (known?.claims !== claims) known = { claims, held: heldDevices(claims) };
    return known.held;
  };
}

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
