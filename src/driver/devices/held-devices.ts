import { defined } from '../../lib/defined.ts';
import type { HeldDevices, HeldFacts } from '../../node/inventory/index.ts';
import { isUserSpace, type StoredClaim, type StoredDevice, type UnrestoredVf } from '../model/index.ts';

/**
 * Returns the devices of the stored claims; computed anew only when a claim has changed, since each tick of the scans needs
 * them several times.
 */
export function heldBy(store: { claims(): readonly StoredClaim[] }): () => HeldDevices {
  let known: { claims: readonly StoredClaim[]; held: HeldDevices } | undefined;
  return () => {
    const claims = store.claims();
    if (known?.claims !== claims) known = { claims, held: heldDevices(claims) };
    return known.held;
  };
}

/**
 * Returns the devices whose present state is temporary: claimed, to be restored, or hung.
 * @param hung PCI addresses
 */
export function unsettledDevices(
  held: HeldDevices,
  unrestored: readonly UnrestoredVf[],
  hung: readonly string[],
): Map<string, HeldFacts> {
  const asFound = hung.map((pciAddress): [string, HeldFacts] => [pciAddress, {}]);
  // A VF may go to the next claim as soon as it is restored, before it is seen again.
  const restored = heldDevices([{ devices: unrestored.map(({ device }) => device) }]);
  return new Map([...asFound, ...restored, ...held]);
}

/** Returns the original state of claimed devices, as far as their claims have changed it. */
export function heldDevices(claims: readonly { devices: readonly StoredDevice[] }[]): HeldDevices {
  const devices = claims.flatMap((claim) => claim.devices);
  return new Map(
    devices.map((device): [string, HeldFacts] => {
      const { pciAddress, before, attachment, offered } = device;
      const { name: interfaceName, altNames, hardwareAddress, mtuBytes } = { ...attachment?.host, ...before?.link };
      const isInPod = attachment !== undefined && !isUserSpace(device) ? (true as const) : undefined;
      const facts = defined({ isInPod, offered, interfaceName, altNames, hardwareAddress, mtuBytes });
      return [pciAddress, before === undefined ? facts : { driver: before.driver, ...facts }];
    }),
  );
}
