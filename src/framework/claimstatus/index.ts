export { type ClaimStatusApi, ClaimStatusWriter, type ClaimStatusWriterOptions } from './claim-status-writer.ts';
export { type DeviceStatus, isOfSameDevice } from './device-status.ts';
export { ClaimStatusError, type ClaimStatusErrorCode } from './errors.ts';
export { withClaimStatus } from './with-claim-status.ts';
