import { createHash } from 'node:crypto';
import { type Link, type LinkFinder, unlessThere } from '../../node/netlink/index.ts';
import type { CreatedLink } from '../model/index.ts';
import { type LinkConnection, mostPodLinks } from './networks.ts';

/**
 * Returns the identity of a link that netdra creates in a pod. @param ownerUid UID of the claim, or of the pod if claims
 * share the link
 */
export function linkToCreate(kind: string, ownerUid: string, name: string): CreatedLink {
  return { kind, alias: `netdra:${kind}:${ownerUid}/${name}` };
}

/**
 * Creates a link in a pod unless it exists. A link cannot be created with an alias. So it is created under a temporary name
 * that only it can have, and gets alias and final name in one request: even if the driver is killed in between, the link is
 * found again.
 * @param make creates the link under the given name
 * @returns `undefined` if a process in the pod has deleted the link in the meantime
 * @throws NetlinkError, with `EEXIST` if the pod has another link with the name
 */
export async function createOnce(
  connection: LinkConnection,
  created: CreatedLink,
  name: string,
  make: (temporaryName: string) => Promise<void>,
): Promise<Link | undefined> {
  const { alias } = created;
  let made = await findCreated(connection, created);
  if (made === undefined) {
    // Another instance of the driver may create the link at the same time.
    await unlessThere(make(temporaryName(alias)), async () => (await findCreated(connection, created)) !== undefined);
    made = await findCreated(connection, created);
  }
  if (made === undefined || made.alias === alias) return made;
  await connection.setLink(made.index, { name, alias });
  return { ...made, name, alias };
}

/** Deletes a link that netdra has created, complete or not. Members of a bond stay. @throws NetlinkError */
export async function deleteCreated(connection: LinkConnection, created: CreatedLink): Promise<void> {
  const found = await findCreated(connection, created);
  if (found !== undefined) await connection.deleteLink(found.index);
}

/** Finds a created link. Looks for its temporary name before its alias: another instance may be completing the link. */
async function findCreated(connection: LinkFinder, { kind, alias }: CreatedLink): Promise<Link | undefined> {
  const unfinished = await connection.link({ name: temporaryName(alias) });
  if (unfinished?.kind === kind) return unfinished;
  const links = await connection.links([{ alias }], mostPodLinks);
  return links.find((link) => link.alias === alias && link.kind === kind);
}

function temporaryName(alias: string): string {
  return `netdra-${createHash('sha256').update(alias).digest('hex').slice(0, 8)}`;
}
