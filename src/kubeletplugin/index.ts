export type { ClaimReader } from './claims.ts';
export { KubeletPluginError } from './errors.ts';
export { type KubeletPluginHelper, type MetadataUpdater, startKubeletPlugin } from './helper.ts';
export { createKubeClaimReader } from './kube-claim-reader.ts';
export type { AllocatedClaim, DraPlugin, PreparedDevice, PrepareResult } from './plugin.ts';
export type { RegistrationStatus } from './registration.ts';
