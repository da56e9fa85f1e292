export { type DeviceAttribute, deviceAttributes, linkIdentity, type VfDevice } from './device.ts';
export { DriverBinding, isVfio } from './driver-binding.ts';
export { SriovError, type SriovErrorCode } from './errors.ts';
export {
  type Exclusion,
  type ExclusionReason,
  Inventory,
  type InventoryOptions,
  type InventoryReport,
} from './inventory.ts';
export { type InventoryPolicy, inventoryPolicySchema } from './inventory-policy.ts';
export { formatDeviceName, formatSimulatedAlias, isPciAddress } from './pci-address.ts';
export { SimulatedNic, type SimulatedNicOptions } from './simulated.ts';
export { SimulatedControl } from './simulated-control.ts';
export { type PciFunction, type Pf, Sysfs, type Vf } from './sysfs.ts';
export { type VfAddress, type VfBefore, VfHardware, type VfWanted } from './vf-hardware.ts';
