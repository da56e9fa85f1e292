import { MetadataError } from './errors.ts';

/**
 * Checks a name that becomes a part of a path. The API server has validated names already; this is for what reaches us
 * by another way, and it costs nothing.
 * @throws MetadataError `metadata-name-invalid`
 */
export function pathPart(name: string, what: string): string {
  if (name === '' || name === '.' || name === '..' || name.length > 253 || /[/\0]/.test(name)) {
    throw new MetadataError('metadata-name-invalid', `${what} ${JSON.stringify(name)} cannot be part of a path`);
  }
  return name;
}
