import { NetdraError } from '../../../lib/errors.ts';

export type GateErrorCode =
  /** `netdra-gate` is not at the path where the driver looks for it. */
  | 'gate-program-missing'
  /** `netdra-gate` cannot be installed in a directory where the runtime finds it. */
  | 'gate-not-installed'
  /** `netdra-gate` is installed, but the node cannot execute it. */
  | 'gate-not-executable';

/** A failure to set up the start gate. */
export class GateError extends NetdraError<GateErrorCode> {}
