import { type HostFile, hostPath, listDir, removeFile } from './host-file.ts';

/** A UUID, the API server's form of UIDs. Files without a UUID in their names belong to other programs. */
const uid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=[_-])/;

/** Returns the UID that follows a prefix in the name of a file; `undefined` if there is none. */
export function uidAfter(prefix: string, name: string): string | undefined {
  return name.startsWith(prefix) ? uid.exec(name.slice(prefix.length))?.[0] : undefined;
}

/**
 * Removes the files of a directory that belong to unknown claims.
 * @param uidOf returns the claim's UID from a file's name; `undefined` for files of other programs, which stay
 * @param known returns the UIDs of existing claims; called after the files are listed, since a claim is known before its first
 * file exists
 * @returns paths of removed files
 * @throws MetadataError `metadata-io`
 */
export function removeUnknownIn(
  dir: HostFile,
  uidOf: (name: string) => string | undefined,
  known: () => ReadonlySet<string>,
): string[] {
  const claimed = listDir(hostPath(dir)).flatMap((name) => {
    const claimUid = uidOf(name);
    return claimUid === undefined ? [] : [{ name, claimUid }];
  });
  if (claimed.length === 0) return [];
  const uids = known();
  const files = claimed.flatMap(({ name, claimUid }) =>
    uids.has(claimUid) ? [] : [{ ...dir, parts: [...dir.parts, name] }],
  );
  for (const file of files) removeFile(file);
  return files.map(hostPath);
}
