import type { ClaimIdentity } from './document.ts';
import { MetadataError } from './errors.ts';

/** A device as a driver names it. */
export interface DeviceName {
  pool: string;
  name: string;
}

/** One request of a prepared claim. */
export interface RequestRecord {
  /** The full reference, `request` or `request/subrequest`. */
  name: string;
  devices: DeviceName[];
}

/**
 * What the driver prepared for a claim. It lies beside the claim's metadata files, goes with them, and lets an update
 * after a restart be checked against it: with deferred metadata there is no file yet that could tell.
 */
export interface ClaimRecord {
  claim: ClaimIdentity;
  podClaimName?: string;
  /** By base name. */
  requests: Record<string, RequestRecord>;
}

const schema = 1;

export function formatClaimRecord(record: ClaimRecord): string {
  return `${JSON.stringify({ schema, ...record }, null, 2)}\n`;
}

/** @throws MetadataError `metadata-malformed`: a record that cannot be read is an error, never "nothing prepared" */
export function parseClaimRecord(text: string, path: string): ClaimRecord {
  let value: Partial<ClaimRecord> & { schema?: unknown };
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new MetadataError('metadata-malformed', `claim record ${path} is not JSON`, { cause, path });
  }
  if (value.schema !== schema || value.claim === undefined || value.requests === undefined) {
    throw new MetadataError('metadata-malformed', `claim record ${path} has schema ${value.schema}, not ${schema}`, {
      path,
      hint: 'it was written by another version of the driver',
    });
  }
  const { claim, podClaimName, requests } = value;
  return { claim, requests, ...(podClaimName === undefined ? {} : { podClaimName }) };
}
