import { NetdraError } from '../../lib/errors.ts';

export type MetadataErrorCode =
  /** The text is not a stream of JSON objects, or an object lacks a field that every version requires. */
  | 'metadata-malformed'
  /** The reader knows the version of no object in the file, or a newer driver has written the claim's record. */
  | 'metadata-version-unknown'
  /** The reader finds no file for the claim and request of its query. */
  | 'metadata-not-found'
  /** resource.k8s.io/v1 does not allow a name, a value or a number of values, so readers may reject it. */
  | 'metadata-invalid'
  /** A name cannot be used in a path: it is empty, `.` or `..`, contains a slash or a NUL byte, or is too long. */
  | 'metadata-name-invalid'
  /** The update names a claim, a request or a device that this driver has not prepared. */
  | 'metadata-not-prepared'
  /** Containers of a claim may not start while one of its requests has no metadata. */
  | 'metadata-not-written'
  /** The file system refused a read, a write or a removal. */
  | 'metadata-io';

/** Failures with metadata documents and with their files. */
export class MetadataError extends NetdraError<MetadataErrorCode> {}
