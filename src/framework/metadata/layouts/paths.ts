import { createHash } from 'node:crypto';
import { type ClaimName, claimName } from '../document/document.ts';
import { MetadataError } from '../errors.ts';

/** Kernel limit for one component of a path, in bytes. Source: linux/limits.h `NAME_MAX`. */
export const maxNameBytes = 255;

/**
 * Checks a name that becomes part of a path. The API server has validated most of these names; this check covers the rest.
 * @throws MetadataError `metadata-name-invalid`
 */
export function pathPart(name: string, what: string): string {
  if (isPathPart(name)) return name;
  throw new MetadataError('metadata-name-invalid', `${what} ${JSON.stringify(name)} cannot be part of a path`);
}

export function isPathPart(name: string): boolean {
  const isUsable = name !== '' && name !== '.' && name !== '..' && name.length <= 253 && !/[/\0]/.test(name);
  return isUsable && name.isWellFormed();
}

/**
 * Checks a file name composed of several names.
 * @throws MetadataError `metadata-name-invalid` if it is too long for the kernel
 */
export function fileName(name: string, subject: string): string {
  const bytes = Buffer.byteLength(name);
  if (bytes <= maxNameBytes) return name;
  const message = `${subject}: file name ${name} has ${bytes} bytes, but at most ${maxNameBytes} are possible`;
  throw new MetadataError('metadata-name-invalid', message, { hint: 'give the claim a shorter name' });
}

/**
 * Returns the name of a claim's directory on the host: `{namespace}_{name}`. If that is too long for the kernel, its end is
 * replaced by `~`, which no Kubernetes name contains, and a digest. Containers do not see the name.
 * @throws MetadataError `metadata-name-invalid`
 */
export function claimDirName(claim: ClaimName): string {
  const name = `${pathPart(claim.namespace, 'claim namespace')}_${pathPart(claim.name, 'claim name')}`;
  if (Buffer.byteLength(name) <= maxNameBytes) return name;
  const digest = createHash('sha256').update(name).digest('base64url');
  return `${Buffer.from(name)
    .toString('latin1')
    .slice(0, 200)
    .replace(/[^\w.-]/g, '-')}~${digest}`;
}

/**
 * Returns the key under which a claim is locked: the name of its directory, which a later claim of the same name shares. Also
 * works for names that cannot have a directory.
 */
export function claimKey(claim: ClaimName): string {
  try {
    return claimDirName(claim);
  } catch {
    return claimName(claim);
  }
}
