export { defaultBootIdPath, endEarlierBoots, readBootId } from './boot.ts';
export { InactiveClaims } from './inactive-claims.ts';
export { ObservedVfs } from './observed-vfs.ts';
export { OrphanedFiles } from './orphaned-files.ts';
export { Reconciler, type ReconcileTask } from './reconciler.ts';
export { UnrestoredVfs } from './unrestored-vfs.ts';
