export { type NetworkDevicePolicy, PolicyObjects, type PolicyObjectsOptions } from './policy-objects.ts';
