import { createHash } from 'node:crypto';
import type { Link, LinkFinder } from '../../node/netlink/index.ts';
import type { CreatedLink } from '../model/index.ts';
import { type LinkConnection, mostPodLinks } from './networks.ts';

/** Returns what identifies a link in a pod. @param ownerUid of the claim, or of the pod if claims share the link */
export function linkToCreate(kind: string, ownerUid: string, name: string): CreatedLink {
  return { kind, alias: `netdra:${kind}:${ownerUid}/${name}` };
}

/**
 * Creates a link in a pod unless it is there. A new link cannot have an alias. So it is made under a name that only it can have, and
 * gets alias and name in one request: whenever the driver is killed, the link is found again.
 * @param make creates it under this name
 * @returns `undefined` if a process in the pod has deleted it meanwhile
 * @throws NetlinkError, with `EEXIST` if the pod has another link of the name
 */
export async function createOnce(
  connection: LinkConnection,
  created: CreatedLink,
  name: string,
  make: (temporaryName: string) => Promise<void>,
): Promise<Link | undefined> {
  const { alias } = created;
  const found = await findCreated(connection, created);
  if (found?.alias === alias) return found;
  const temporary = temporaryName(alias);
  if (found === undefined) await make(temporary);
  const made = found ?? (await connection.link({ name: temporary }));
  if (made === undefined) return undefined;
  await connection.setLink(made.index, { name, alias });
  return { ...made, name, alias };
}

/** Deletes such a link, also one that is not complete. Members of a bond stay. @throws NetlinkError */
export async function deleteCreated(connection: LinkConnection, created: CreatedLink): Promise<void> {
  const found = await findCreated(connection, created);
  if (found !== undefined) await connection.deleteLink(found.index);
}

async function findCreated(connection: LinkFinder, { kind, alias }: CreatedLink): Promise<Link | undefined> {
  const links = await connection.links([{ alias }], mostPodLinks);
  const named = links.find((link) => link.alias === alias && link.kind === kind);
  if (named !== undefined) return named;
  const unfinished = await connection.link({ name: temporaryName(alias) });
  return unfinished?.kind === kind ? unfinished : undefined;
}

function temporaryName(alias: string): string {
  return `netdra-${createHash('sha256').update(alias).digest('hex').slice(0, 8)}`;
}
