import { NetlinkError } from './errors.ts';
import { freeName } from './free-name.ts';
import type { Link, LinkChange, NetnsReference } from './link.ts';
import type { LinkReader, LinkWriter } from './link-access.ts';

interface MoveTarget {
  netns: NetnsReference;
  connection: LinkReader;
}

/**
 * Maximum number of attempts: a process in either namespace can take names during the move, and a process in a pod can keep
 * doing so.
 */
const attempts = 20;

/**
 * Moves a link into another namespace and sets its name there in the same step, so that the name need not be free in the old
 * namespace. Alternative names are removed: since Linux 6.7, one that is taken in the target makes the move fail, and before
 * that it would exist there twice. The kernel sets the link down, takes it out of its bridge or bond, and drops its
 * addresses, routes and qdiscs. VLANs and macvlans on top of the link stay in the old namespace. Its index may change.
 * @param link the link as it was last read. The kernel moves by index, and a process in a pod can move the link away and
 * create another one with the same index. So the link is compared before each attempt, and once it is in the target
 * @param change changes to make in the target; without a name the link keeps its own
 * @param options.acceptOtherName whether a name that is taken in the target is replaced by a free one. For the way back to
 * the host, which must not fail because another link has the name. A process in the pod that keeps adding alternative names
 * can still make the move fail; the link must then be recreated by binding its driver again
 * @returns the link in the target
 * @throws NetlinkError `netlink-refused` with `EEXIST` if the target has a link with the name; nothing was moved then
 */
export async function moveLink(
  from: LinkReader & LinkWriter,
  link: Link,
  to: MoveTarget,
  change: Omit<LinkChange, 'netns'> = {},
  { acceptOtherName = false } = {},
): Promise<Link> {
  const { index } = link;
  let now = link;
  for (let attempt = 1; ; attempt++) {
    // A failure is ignored: if it matters, the move fails, too.
    if (now.altNames.length > 0) await from.removeAltNames(index).catch(() => undefined);
    const wanted = change.name ?? now.name;
    // The name is checked before the move: the kernel notices a conflict only after the move, and leaves the link in the
    // target under its old name.
    const isTaken = (await to.connection.link({ name: wanted })) !== undefined;
    if (isTaken && !acceptOtherName) throw nameTaken(wanted, to.netns.path);
    const name = isTaken ? await freeName(to.connection, index) : wanted;
    const found = await from.link({ index });
    if (found === undefined || !isSameLink(found, link))
      throw missing(`#${index}`, undefined, 'it is gone or was moved: list the links again');
    now = found;
    try {
      await from.setLink(index, { ...change, name, netns: to.netns });
    } catch (error) {
      const lostName = error instanceof NetlinkError && error.errno === 'EEXIST';
      if (!acceptOtherName || !lostName || attempt === attempts) throw error;
      const moved = await findUnderOldName(from, now, to);
      if (moved !== undefined) return moved;
      continue;
    }
    const moved = await to.connection.link({ name });
    if (moved === undefined || !isSameDevice(moved, link))
      throw missing(name, to.netns.path, 'a process in one of the namespaces took, renamed or replaced it');
    return moved;
  }
}

/** Finds a link that was moved but not renamed: the kernel moves a link first, and the new name may be taken in between. */
async function findUnderOldName(from: LinkReader, now: Link, to: MoveTarget): Promise<Link | undefined> {
  if ((await from.link({ index: now.index })) !== undefined) return undefined;
  const found = await to.connection.link({ name: now.name });
  return found !== undefined && isSameLink(found, now) ? found : undefined;
}

/**
 * Returns whether two links belong to the same device. A pod cannot change the device of a link, whereas it can change the
 * MAC address.
 */
function isSameDevice(one: Link, other: Link): boolean {
  return one.parentDevice === other.parentDevice && one.kind === other.kind;
}

/**
 * Returns whether two links are the same. Links of simulated VFs have no device, and before Linux 5.14 the kernel reports
 * none: then the MAC addresses must be equal, too.
 */
function isSameLink(one: Link, other: Link): boolean {
  return isSameDevice(one, other) && (one.parentDevice !== undefined || one.hardwareAddress === other.hardwareAddress);
}

function nameTaken(name: string, netns: string): NetlinkError {
  const message = `cannot move link ${name} into ${netns}: the name is taken there (EEXIST)`;
  const subject = { errno: 'EEXIST', operation: 'move link', interfaceName: name, netns, path: netns };
  const hint = 'choose another interface name for the pod';
  return new NetlinkError('netlink-refused', message, { ...subject, hint });
}

function missing(name: string, netns: string | undefined, hint: string): NetlinkError {
  const where = netns === undefined ? '' : ` in ${netns} after the move`;
  const details = { errno: 'ENODEV', operation: 'move link', interfaceName: name, netns, hint };
  return new NetlinkError('netlink-refused', `cannot find link ${name}${where} (ENODEV)`, details);
}
