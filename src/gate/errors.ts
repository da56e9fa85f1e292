import { NetdraError } from '../errors.ts';

export type GateErrorCode =
  /** `netdra-gate` is not where it was looked for. */
  | 'gate-program-missing'
  /** It cannot be put where the runtime finds it. */
  | 'gate-not-installed'
  /** It is there, and the node would not run it. */
  | 'gate-not-executable';

/** Whatever keeps the driver from having a start gate. */
export class GateError extends NetdraError<GateErrorCode> {}
