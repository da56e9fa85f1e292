import { randomBytes } from 'node:crypto';
import { type FunctionLinks, type LinkStateConnection, NetlinkError } from '../netlink/index.ts';
import { SriovError } from './errors.ts';
import { noAddress } from './property-values.ts';
import type { VfProperties } from './vf-properties.ts';
import type { VfAddress, VfSnapshot } from './vf-snapshot.ts';

interface Parts {
  host: LinkStateConnection;
  links: FunctionLinks;
  properties: VfProperties;
}

/**
 * Restores the administrative address of a VF. If the PF reports an address, that may be the VF's own, which its interface
 * can take again: setting it through the PF would make it administrative, and no later pod could choose another address. So
 * the interface is tried first; it refuses if the address is administrative.
 * @returns the address that stays administrative, if the PF refuses to remove it
 * @throws as `VfProperties.set`
 */
export async function restoreAdminAddress(
  { host, links, properties }: Parts,
  address: VfAddress,
  { vf: { hardwareAddress: wanted }, link: before }: VfSnapshot,
): Promise<string | undefined> {
  if (wanted === undefined) return undefined;
  const present = async () => (await properties.read(address)).hardwareAddress;
  if ((await present()) === wanted) return undefined;
  const link = wanted === before?.hardwareAddress ? await links.find(address.pciAddress) : undefined;
  if (link !== undefined) {
    await host.setLink(link.index, { up: false, hardwareAddress: wanted }).catch(ignoreRefusal);
    if ((await present()) === wanted) return undefined;
  }
  const isSet = async () => {
    try {
      await properties.set(address, { hardwareAddress: wanted });
      return true;
    } catch (error) {
      if (wanted !== noAddress || !isRemovalRefused(error)) throw error;
      return false;
    }
  };
  if (await isSet()) return undefined;
  // The VF gets another address, so that the next pod does not get an address that the claim set or a trusted pod chose.
  const own = before?.hardwareAddress ?? randomAddress();
  await properties.set(address, { hardwareAddress: own });
  // The refusal may have been temporary: ice refuses every address as invalid while it resets the VF.
  return (await isSet()) ? undefined : own;
}

/** Returns whether a PF has refused an address as invalid. The PFs of octeontx2, qede and other drivers refuse zeros. */
function isRemovalRefused(error: unknown): boolean {
  const { cause } = error instanceof SriovError ? error : {};
  return cause instanceof NetlinkError && ['EINVAL', 'EADDRNOTAVAIL'].includes(cause.errno ?? '');
}

/** Returns a random, locally administered unicast address, like those that kernel drivers give VFs. */
function randomAddress(): string {
  const octets = randomBytes(6);
  octets[0] = (octets[0]! & 0xfe) | 0x02;
  return Array.from(octets, (octet) => octet.toString(16).padStart(2, '0')).join(':');
}

function ignoreRefusal(error: unknown): void {
  if (!(error instanceof NetlinkError && error.code === 'netlink-refused')) throw error;
}
