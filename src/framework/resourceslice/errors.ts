import { type ErrorDetails, NetdraError } from '../../lib/errors.ts';

export type SliceErrorCode =
  /** The API server would refuse the devices; nothing was published. */
  | 'slice-invalid'
  /** The API server does not know some fields, and stored the devices without them. */
  | 'slice-fields-dropped'
  /** The API server refuses attributes in list form; nothing was published. */
  | 'slice-lists-refused'
  /** The Node that owns the slices does not exist. */
  | 'slice-node-unknown'
  /** The driver does not know yet which devices other drivers offer on the node; nothing was published. */
  | 'slice-others-unknown';

export interface SliceProblem {
  /** Name of the device; absent for a problem of the pool. */
  device?: string;
  /** Path of the field as in the API: `attributes[mtu].int`. */
  field: string;
  message: string;
}

interface SliceErrorDetails extends ErrorDetails {
  pool?: string;
  problems?: SliceProblem[];
}

/** A failure to publish a pool as the driver wants. */
export class SliceError extends NetdraError<SliceErrorCode, SliceErrorDetails> {
  declare readonly pool: string | undefined;
  declare readonly problems: readonly SliceProblem[];

  constructor(code: SliceErrorCode, message: string, details?: SliceErrorDetails) {
    super(code, message, { problems: [], ...details });
  }
}

/** Returns whether the API server has stored devices without their taints, which need a feature gate before Kubernetes 1.36. */
export function dropsTaints(error: Error): boolean {
  if (!(error instanceof SliceError) || error.code !== 'slice-fields-dropped') return false;
  return error.problems.some(({ field }) => /^taints\b/.test(field));
}

/**
 * Returns whether the API server has refused attributes in list form. If its feature gate `DRAListTypeAttributes` is off, it
 * drops the lists, and then refuses the attributes since they have no value.
 */
export function refusesLists(error: Error): boolean {
  return error instanceof SliceError && error.code === 'slice-lists-refused';
}

const maxListed = 5;

/** Formats the first problems in one line, followed by the number of further problems. */
export function formatProblems(problems: readonly SliceProblem[]): string {
  const texts = problems.slice(0, maxListed).map(({ device, field, message }) => {
    const place = device === undefined ? field : `device ${device}: ${field}`;
    return `${place} ${message}`;
  });
  const more = problems.length - texts.length;
  return texts.join('; ') + (more > 0 ? `; and ${more} more` : '');
}
