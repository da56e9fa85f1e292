export { endEarlierBoots } from './boot.ts';
export { CniCleanUp, type CniCleanUpOptions } from './cni-clean-up.ts';
export { InactiveClaims, type InactiveClaimsOptions } from './inactive-claims.ts';
export { LostLeases } from './lost-leases.ts';
export { ObservedVfs } from './observed-vfs.ts';
export { OrphanedFiles } from './orphaned-files.ts';
export { Reconciler, type ReconcileTask } from './reconciler.ts';
export { RecordedFiles } from './recorded-files.ts';
export { restoreVfs } from './unrestored-vfs.ts';
