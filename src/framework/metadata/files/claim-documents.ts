import { decodeStream } from '../document/decode.ts';
import type { MetadataDocument } from '../document/document.ts';
import { MetadataError } from '../errors.ts';
import { metadataDirName } from '../layouts/layout-v1.ts';
import { type HostFile, hostPath, listDir, listSubdirectories, readFileIfThere } from './host-file.ts';

/** A metadata file in a claim's directory, in a layout that says whose it is. */
export interface FoundDocument {
  /** Base name of the request. */
  base: string;
  document: MetadataDocument;
}

/**
 * The metadata files in a claim's directory that have content: they show whose directory it is if its record does not.
 * @param dir name of the claim's directory
 * @throws MetadataError `metadata-io`
 */
export function readDocuments(dataDir: string, dir: string): FoundDocument[] {
  const claimDir: HostFile = { base: dataDir, parts: [metadataDirName, dir] };
  const found: FoundDocument[] = [];
  for (const base of listSubdirectories(claimDir)) {
    const requestDir: HostFile = { ...claimDir, parts: [...claimDir.parts, base] };
    for (const name of listDir(hostPath(requestDir))) {
      // Unfinished files begin with a dot.
      if (name.startsWith('.') || !name.endsWith('.json')) continue;
      const document = decodeIfWhole(readFileIfThere({ ...requestDir, parts: [...requestDir.parts, name] }));
      if (document !== undefined) found.push({ base, document });
    }
  }
  return found;
}

/** @returns `undefined` for a file that is missing, blank or damaged */
export function decodeIfWhole(text: string | undefined): MetadataDocument | undefined {
  try {
    return text === undefined || text.trim() === '' ? undefined : decodeStream(text);
  } catch (error) {
    if (error instanceof MetadataError) return undefined;
    throw error;
  }
}
