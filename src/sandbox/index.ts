export { CniAttacher } from './cni-attacher.ts';
export { SandboxError } from './errors.ts';
export { SandboxHandler } from './handler.ts';
export { type HookFailure, type HookFailureMode, hookFailureModes, resolveHookFailure } from './hook-failure.ts';
export { type OnStep, type Step, steps } from './steps.ts';
export { type VfHost, VfMover } from './vf-mover.ts';
