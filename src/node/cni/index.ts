export type { CniAttachment, CniIpamAttachment } from './attachment.ts';
export { type CniCommand, CniError, type CniErrorCode, type CniErrorDetails } from './errors.ts';
export type { Exec, ExecOutcome, ExecRequest } from './exec.ts';
export {
  type CniIpam,
  type CniNetwork,
  type CniPluginConfig,
  type ParseNetworkOptions,
  parseCniIpam,
  parseCniNetwork,
} from './network.ts';
export type { CniAddress, CniDns, CniInterface, CniResult, CniRoute } from './result.ts';
export { type CachedAttachment, type CniCallOptions, CniRunner, type CniRunnerOptions } from './runner.ts';
export { type CniVersion, cniVersions } from './versions.ts';
