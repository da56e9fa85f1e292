import { createHash } from 'node:crypto';
import { defined } from '../../lib/defined.ts';
import { isEthernetAddress, type Link, type LinkFinder, type LinkReader } from '../../node/netlink/index.ts';
import { SandboxError, type VfConfig } from '../model/index.ts';
import { type LinkConnection, mostPodLinks } from './networks.ts';

export type BondConfig = NonNullable<VfConfig['bond']>;

const defaultMiimonMs = 100;

/** Identifies the bond of a claim in its pod: it is found by it after a restart, and differs from the pod's own bonds. */
export function bondAlias(claimUid: string, { name }: BondConfig): string {
  return `netdra:bond:${claimUid}/${name}`;
}

/**
 * Makes a VF in a pod a member of its bond, and the bond before if this is its first member. Each step is left out if it is
 * done already. Without an MTU in its configuration a bond has the smallest one of its members.
 * @param link the VF's, as it was read last
 * @param alias of the bond, see {@link bondAlias}
 * @returns the bond
 * @throws NetlinkError `netlink-refused`, with `ENOTSUP` if the kernel has no bonding; SandboxError `bond-refused`
 */
export async function joinBond(connection: LinkConnection, link: Link, alias: string, config: VfConfig): Promise<Link> {
  const joined = await bondOf(connection, link);
  if (joined !== undefined) return joined;
  const found = await findBond(connection, alias);
  const bond = found?.alias === alias ? found : await makeBond(connection, config, alias, link, found);
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
  return (await connection.link({ index: bond.index })) ?? bond;
}

/** The bond that a link is a member of. */
export async function bondOf(connection: LinkReader, { master }: { master?: number }): Promise<Link | undefined> {
  const found = master === undefined ? undefined : await connection.link({ index: master });
  return found?.kind === 'bond' ? found : undefined;
}

/** Deletes a bond that was made for a claim, also one that is not complete. Its members stay. */
export async function deleteBond(connection: LinkConnection, alias: string): Promise<void> {
  const bond = await findBond(connection, alias);
  if (bond !== undefined) await connection.deleteLink(bond.index);
}

/**
 * A new link cannot have an alias. So a bond is made under a name that only it can have, and gets alias and name in one
 * request: whenever the driver is killed, the bond is found again.
 */
async function makeBond(
  connection: LinkConnection,
  { bond, mtu }: VfConfig,
  alias: string,
  member: Link,
  unfinished?: Link,
): Promise<Link> {
  const { name = '', mode = 'active-backup', miimon, failOverMac, arpInterval, ...options } = bond ?? { name: '' };
  const isBackup = mode === 'active-backup';
  const temporary = temporaryName(alias);
  if (unfinished === undefined) {
    await connection.createBond({
      name: temporary,
      mtuBytes: mtu ?? member.mtuBytes,
      mode,
      ...defined({ ...options, arpIntervalMs: arpInterval }),
      ...(arpInterval === undefined && { miimonMs: miimon ?? defaultMiimonMs }),
      // With the default of the kernel the other members would need the address of the first one, which most PFs refuse.
      ...(isBackup && { failOverMac: failOverMac ?? 'active' }),
    });
  }
  const made = unfinished ?? (await connection.link({ name: temporary }));
  if (made === undefined) throw vanished(name);
  await connection.setLink(made.index, { name, alias });
  return { ...made, name, alias };
}

async function findBond(connection: LinkFinder, alias: string): Promise<Link | undefined> {
  const named = (await connection.links([{ alias }], mostPodLinks)).find(
    (link) => link.alias === alias && link.kind === 'bond',
  );
  if (named !== undefined) return named;
  const unfinished = await connection.link({ name: temporaryName(alias) });
  return unfinished?.kind === 'bond' ? unfinished : undefined;
}

function temporaryName(alias: string): string {
  return `netdra-${createHash('sha256').update(alias).digest('hex').slice(0, 8)}`;
}

function vanished(name: string): SandboxError {
  const message = `bond ${name} is not there after it was made`;
  return new SandboxError('bond-refused', message, { retriable: true, hint: 'a process in the pod has deleted it' });
}

function refused({ name, hardwareAddress }: Link, bond: Link, cause: unknown): SandboxError {
  const message = `link ${name} with MAC ${hardwareAddress} cannot join ${bond.name} with MAC ${bond.hardwareAddress}`;
  const hint = isEthernetAddress(hardwareAddress ?? '')
    ? 'set failOverMac active, or vf.trust: otherwise all members take the MAC of the bond, which only trusted VFs may'
    : 'IPoIB supports only bonds in mode active-backup with failOverMac active';
  return new SandboxError('bond-refused', message, { cause, retriable: true, hint });
}
