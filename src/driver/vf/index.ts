export { Attachments } from './attachments.ts';
export type { VfControl } from './host-vfs.ts';
export type { AdminSettingsReader } from './pf-settings.ts';
export { PodLinks } from './pod-links.ts';
export { restore, type VfDetacher } from './restore.ts';
export { leftError, type MemberState, type VfState } from './strategy.ts';
export type { VfHost } from './vf-links.ts';
export { TrafficReader, type TrafficReaderOptions, type TrafficReport, type TrafficSample } from './vf-traffic.ts';
export { toVfWanted } from './vf-wanted.ts';
