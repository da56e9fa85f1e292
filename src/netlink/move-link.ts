import { NetlinkError } from './errors.ts';
import type { Link, LinkChange } from './link.ts';
import type { NetnsHandle } from './netns.ts';
import type { RtnlConnection } from './rtnl.ts';

export interface MoveTarget {
  netns: NetnsHandle;
  connection: RtnlConnection;
}

/**
 * Moves a link into another namespace and gives it its name there in the same step, so that it need not be free here.
 * The kernel takes the link down and drops its addresses and routes; its index may change.
 * @param change applied in the target; without a name the link keeps its own
 * @returns the link as it is in the target
 * @throws NetlinkError `netlink-refused` with `EEXIST` if the target has a link of that name; then nothing was moved
 */
export async function moveLink(
  from: RtnlConnection,
  index: number,
  to: MoveTarget,
  change: Omit<LinkChange, 'netns'> = {},
): Promise<Link> {
  const name = change.name ?? (await from.link({ index }))?.name;
  if (name === undefined) throw missing(`#${index}`, undefined, 'it is gone or was moved: list the links again');
  // Asked before: the kernel finds out after the move and leaves the link in the target under its old name.
  if ((await to.connection.link({ name })) !== undefined) throw nameTaken(name, to.netns.path);
  await from.setLink(index, { ...change, name, netns: to.netns });
  const moved = await to.connection.link({ name });
  if (moved === undefined) throw missing(name, to.netns.path, 'somebody in the namespace took or renamed it');
  return moved;
}

function nameTaken(name: string, netns: string): NetlinkError {
  return new NetlinkError(
    'netlink-refused',
    `cannot move link ${name} into ${netns}: the name is taken there (EEXIST)`,
    {
      errno: 'EEXIST',
      operation: 'move link',
      interfaceName: name,
      netns,
      path: netns,
      hint: 'choose another interface name for the pod',
    },
  );
}

function missing(name: string, netns: string | undefined, hint: string): NetlinkError {
  const where = netns === undefined ? '' : ` in ${netns} after the move`;
  return new NetlinkError('netlink-refused', `cannot find link ${name}${where} (ENODEV)`, {
    errno: 'ENODEV',
    operation: 'move link',
    interfaceName: name,
    netns,
    hint,
  });
}
