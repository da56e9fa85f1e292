export { AbandonedClaims } from './abandoned-claims.ts';
export { defaultBootIdPath, endEarlierBoots, readBootId } from './boot.ts';
export { OrphanedFiles } from './orphaned-files.ts';
export { Reconciler, type ReconcileTask } from './reconciler.ts';
