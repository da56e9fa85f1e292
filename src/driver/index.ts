export type { VfConfig } from './config.ts';
export { Driver, type Inventory, type VfCarrier } from './driver.ts';
export { DriverError } from './errors.ts';
export { type Attachment, Store, type StoredClaim, type StoredDevice } from './store.ts';
