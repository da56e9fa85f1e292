import { gone, NetlinkError } from './errors.ts';
import { freeName, isFallbackName } from './free-name.ts';
import { unlessThere } from './host-config.ts';
import type { RtnlConnection } from './rtnl.ts';

/** Part of {@link RtnlConnection} that reads and sets names of links. */
type NameConnection = Pick<RtnlConnection, 'link' | 'setLink' | 'addAltName' | 'removeAltNames'>;

/**
 * Number of attempts to rename a link. A rename can fail, since udev adds the link's own name as an alternative name some
 * time after the link has returned under another name.
 */
const renameAttempts = 3;

/**
 * Renames a link. If another link has the name, gives the link a free name and throws. @throws NetlinkError `netlink-refused`
 */
export async function restoreName(connection: NameConnection, index: number, name: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const link = await connection.link({ index });
    if (link === undefined) throw gone(index);
    if (link.name === name) return;
    const { altNames } = link;
    if (altNames.includes(name)) {
      await connection.removeAltNames(
        index,
        altNames.filter((each) => each !== name),
      );
    }
    try {
      return await connection.setLink(index, { name });
    } catch (error) {
      if (!(error instanceof NetlinkError && error.errno === 'EEXIST')) throw error;
      if (attempt < renameAttempts) continue;
      if (!isFallbackName(link.name)) await connection.setLink(index, { name: await freeName(connection, index) });
      throw await nameTaken(connection, index, name, error);
    }
  }
}

/** Sets the alternative names of a link, and removes all others. @throws NetlinkError `netlink-refused` */
export async function restoreAltNames(connection: NameConnection, index: number, before?: string[]): Promise<void> {
  if (before === undefined) return;
  const link = await connection.link({ index });
  if (link === undefined) throw gone(index);
  const { altNames } = link;
  if (altNames.some((name) => !before.includes(name))) await connection.removeAltNames(index, before);
  for (const name of before) {
    if (altNames.includes(name) || name === link.name) continue;
    // udev may have added the name since the link was read.
    const isThere = async () => (await connection.link({ index }))?.altNames.includes(name) === true;
    await unlessThere(connection.addAltName(index, name), isThere);
  }
}

async function nameTaken(
  connection: NameConnection,
  index: number,
  name: string,
  cause: NetlinkError,
): Promise<NetlinkError> {
  const holder = await connection.link({ name });
  const by = holder === undefined ? '' : ` by link #${holder.index} (${holder.name})`;
  return new NetlinkError('netlink-refused', `cannot rename link #${index} to ${name}: the name is taken${by}`, {
    cause,
    errno: 'EEXIST',
    operation: 'rename link',
    interfaceName: name,
    retriable: true,
    hint: `rename or delete the link that has the name ${name}`,
  });
}
