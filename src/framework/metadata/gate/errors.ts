import { NetdraError } from '../../../lib/errors.ts';

export type GateErrorCode =
  /** `netdra-gate` is not where it is expected. */
  | 'gate-program-missing'
  /** `netdra-gate` cannot be installed where the runtime finds it. */
  | 'gate-not-installed'
  /** `netdra-gate` is installed, but the node does not run it. */
  | 'gate-not-executable';

/** Why the driver cannot use a start gate. */
export class GateError extends NetdraError<GateErrorCode> {}
