export { createKubeSliceApi, type OfferedDevice, type SliceApi, SlicePublisher } from './publisher.ts';
