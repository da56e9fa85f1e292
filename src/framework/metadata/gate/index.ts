/** Keeps containers from starting before their devices are ready: docs/decisions/0017-a-gate-that-waits.md. */
export {
  chooseStartGate,
  defaultHooklessHandlers,
  isHookless,
  type StartGateChoice,
  type StartGateMode,
  startGateModes,
} from './choose-start-gate.ts';
export { GateError, type GateErrorCode } from './errors.ts';
export { defaultGateProgram, gateProgramPath, installGate } from './install.ts';
export { type RuntimeHandlers, readRuntimeHandlers } from './runtime-handlers.ts';
