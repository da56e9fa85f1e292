export type { MetadataCalls } from './metadata-writer.ts';
export { NumaGuard } from './numa-guard.ts';
export type { NumaResult } from './numa-placement.ts';
export type { Phase } from './phases.ts';
export type { SandboxFacts } from './pod.ts';
export { metadataOf } from './pod-metadata.ts';
export type { SandboxRegistry } from './sandbox-registry.ts';
export { createSandboxSide, type SandboxSide, type SandboxSideOptions } from './side.ts';
export { StatusReport } from './status-report.ts';
