import { baseRequest } from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import { isEthernetAddress, type Link, type LinkReader } from '../../node/netlink/index.ts';
import { type CreatedLink, SandboxError, type StoredDevice, type VfConfig } from '../model/index.ts';
import { createOnce } from './created-links.ts';
import type { LinkConnection } from './networks.ts';

const defaultMiimonMs = 100;

/** Parts of a device that its bond depends on. */
type Member = Pick<StoredDevice, 'config' | 'request'>;

/**
 * Makes a VF in a pod a member of its bond, and creates the bond for its first member. Skips steps that are already done. If
 * the configuration sets no MTU, the bond gets the smallest MTU of its members.
 * @param link link of the VF, as last read
 * @param created identity of the bond, see `linkToCreate`
 * @returns the bond
 * @throws NetlinkError `netlink-refused`, with `ENOTSUP` if the kernel has no bonding; SandboxError `bond-refused`
 */
export async function joinBond(
  connection: LinkConnection,
  link: Link,
  created: CreatedLink,
  { config, request }: Member,
): Promise<Link> {
  const bond = (await bondOf(connection, link)) ?? (await becomeMember(connection, link, created, config));
  // Also set for a VF that has already joined: the driver may have been killed in between. A bond that the pod itself has
  // created is left alone.
  const isPrimary = config.bond?.primary === baseRequest(request) && bond.alias === created.alias;
  // The primary is set only once: whenever it is set, the kernel uses it at once, whatever `primaryReselect` says.
  if (isPrimary && bond.primaryMember !== link.index)
    await connection.setLink(bond.index, { primaryMember: link.index });
  return (await connection.link({ index: bond.index })) ?? bond;
}

async function becomeMember(
  connection: LinkConnection,
  link: Link,
  created: CreatedLink,
  config: VfConfig,
): Promise<Link> {
  const name = config.bond?.name ?? '';
  const make = (temporary: string) => connection.createBond(newBond(temporary, config, link));
  const bond = await createOnce(connection, created, name, make);
  if (bond === undefined) throw vanished(name);
  const { macAddress, mtu } = config;
  const isOther = macAddress !== undefined && macAddress.toLowerCase() !== link.hardwareAddress;
  // A link that is up cannot become a member.
  await connection.setLink(link.index, { up: false, ...(isOther && { hardwareAddress: macAddress }) });
  if (mtu === undefined && link.mtuBytes < bond.mtuBytes) {
    await connection.setLink(bond.index, { mtuBytes: link.mtuBytes });
  }
  await connection.setLink(link.index, { master: bond.index }).catch((cause: unknown) => {
    throw refused(link, bond, cause);
  });
  return bond;
}

/** Returns the bond that a link is a member of. */
export async function bondOf(connection: LinkReader, { master }: { master?: number }): Promise<Link | undefined> {
  const found = master === undefined ? undefined : await connection.link({ index: master });
  return found?.kind === 'bond' ? found : undefined;
}

/** Returns the request for a new bond with one member. @param name name that the bond gets at first */
function newBond(name: string, { bond, mtu }: VfConfig, member: Link): Parameters<LinkConnection['createBond']>[0] {
  const { name: _name, primary: _primary, mode = 'active-backup', ...others } = bond ?? { name: '' };
  const { miimon, failOverMac, arpInterval, ...options } = others;
  return {
    name,
    mtuBytes: mtu ?? member.mtuBytes,
    mode,
    ...defined({ ...options, arpIntervalMs: arpInterval }),
    ...(arpInterval === undefined && { miimonMs: miimon ?? defaultMiimonMs }),
    // With the kernel's default, the other members would need the first member's address, which most PFs refuse.
    ...(mode === 'active-backup' && { failOverMac: failOverMac ?? 'active' }),
  };
}

function vanished(name: string): SandboxError {
  const message = `bond ${name} has disappeared after it was created`;
  return new SandboxError('bond-refused', message, {
    retriable: true,
    hint: 'a process in the pod has deleted the bond',
  });
}

function refused({ name, hardwareAddress }: Link, bond: Link, cause: unknown): SandboxError {
  const message = `link ${name} with MAC ${hardwareAddress} cannot join ${bond.name} with MAC ${bond.hardwareAddress}`;
  const hint = isEthernetAddress(hardwareAddress ?? '')
    ? 'set failOverMac active, or vf.trust: otherwise all members take the MAC of the bond, which only trusted VFs may'
    : 'IPoIB supports only bonds in mode active-backup with failOverMac active';
  return new SandboxError('bond-refused', message, { cause, retriable: true, hint });
}
