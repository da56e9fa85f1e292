import { defined } from '../../lib/defined.ts';
import type { HeldDevices, HeldFacts } from '../../node/inventory/index.ts';
import { isUserSpace, type StoredClaim, type StoredDevice, type UnrestoredVf } from '../model/index.ts';

/**
 * Returns a function that returns the devices of the stored claims. It caches them until a claim changes, since each tick of
 * the scan schedule needs them several times.
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
 * Returns the devices whose present state is temporary, since they are claimed, unrestored or hung.
 * @param hung PCI addresses of hung devices
 */
export function unsettledDevices(
  held: HeldDevices,
  unrestored: readonly UnrestoredVf[],
  hung: readonly string[],
): Map<string, HeldFacts> {
  const asFound = hung.map((pciAddress): [string, HeldFacts] => [pciAddress, {}]);
  // The next claim may get a VF as soon as it is restored, before a scan sees it again.
  const restored = heldDevices([{ devices: unrestored.map(({ device }) => device) }]);
  return new Map([...asFound, ...restored, ...held]);
}

/** Returns the original properties of claimed devices that their claims have changed. */
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
