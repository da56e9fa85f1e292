export type { CniAttachment, CniIpamAttachment, CniTask as CachedAttachment } from './attachment.ts';
export { CniError } from './errors.ts';
export { parseCniIpam, parseCniNetwork } from './network.ts';
export type { CniResult, CniRoute } from './result.ts';
export { CniRunner } from './runner.ts';
export { cniVersions } from './versions.ts';
