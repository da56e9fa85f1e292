export { createPolicySource } from '../composition/create-policy-source.ts';
export { type NetworkDevicePolicy, PolicyObjects, type PolicyObjectsOptions } from './policy-objects.ts';
