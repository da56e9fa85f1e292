export { createKubeSliceApi, type SliceApi, SlicePublisher } from './publisher.ts';
