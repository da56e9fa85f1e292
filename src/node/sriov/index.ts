export { type Card, openCard } from './card.ts';
export { DeviceNodes } from './device-nodes.ts';
export { DriverBinding, hasNoInterface, isVfio } from './driver-binding.ts';
export { SriovError, UnknownVfStateError } from './errors.ts';
export { HostLinks } from './host-links.ts';
export { type HungWrite, hungWriteHint, KernelWriter, type KernelWriterOptions } from './kernel-writer.ts';
export { formatDeviceName, formatSimulatedAlias, isPciAddress } from './pci-address.ts';
export {
  complete,
  difference,
  isRounded,
  propertiesOf,
  type VfPropertiesWanted,
  type VfProperty,
} from './property-values.ts';
export { SimulatedNic, type SimulatedNicOptions } from './simulated.ts';
export { SimulatedControl } from './simulated-control.ts';
export { simulatedDriver } from './simulated-layout.ts';
export { type PciFunction, type Pf, Sysfs, type Vf } from './sysfs.ts';
export { VfActivation } from './vf-activation.ts';
export { VfHardware, type VfHardwareOptions } from './vf-hardware.ts';
export {
  type AccessWanted,
  addressToKeep,
  type RestoreOptions,
  type SnapshotOptions,
  type VfAccess,
  type VfAddress,
  type VfSnapshot,
  type VfWanted,
} from './vf-snapshot.ts';
