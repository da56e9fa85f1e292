export { Store, type StoredClaims, type StoreOptions } from './store.ts';
export { type Database, schemaVersion } from './store-schema.ts';
export { StoredRecords } from './stored-records.ts';
