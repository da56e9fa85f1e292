export { type PrivilegedField, privilegedFields, type VfConfig } from './config.ts';
export { Driver, type Inventory, type VfCarrier, type VfControl } from './driver.ts';
export { DriverError } from './errors.ts';
export { type Attachment, Store, type StoredClaim, type StoredDevice } from './store.ts';
export { isUserSpace } from './vf-wanted.ts';
