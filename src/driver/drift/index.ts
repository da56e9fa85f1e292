export { driftSettings, podDriftOf } from './drift.ts';
export { DriftRecord } from './drift-record.ts';
export { DriftReport, type DriftResult, driftResults } from './drift-report.ts';
export { PfDriftSweep } from './pf-drift.ts';
