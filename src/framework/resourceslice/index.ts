export { dropsTaints, refusesLists, SliceError, type SliceErrorCode, type SliceProblem } from './errors.ts';
export type {
  Counter,
  CounterConsumption,
  CounterSet,
  Device,
  DeviceCapacity,
  DeviceTaint,
  DriverResources,
  Pool,
  ResourceSlice,
} from './model.ts';
export { type PublisherOptions, SlicePublisher } from './publisher.ts';
export { createSliceApi, type SliceApi } from './slice-api.ts';
