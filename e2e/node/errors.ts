import { NetdraError } from '../../src/lib/errors.ts';

/** A part of a node that does not start, exits by itself, or is not ready in time. */
export class NodeError extends NetdraError<'program-ended' | 'not-ready' | 'not-in-node' | 'left-behind'> {}
