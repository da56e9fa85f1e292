/** Devices that a node can offer (SR-IOV functions and whole NICs), reasons to exclude them, and their attributes in slices. */
export { deviceAttributes, type InventoryAttribute } from './attributes.ts';
export { linkIdentity, type NetworkDevice } from './device.ts';
export { DevicePlugins, type GivenOut, judgeAll, kubeletCheckpoint } from './device-plugins.ts';
export { type Exclusion, type ExclusionReason, type ExclusionVerdict, explainExclusion } from './exclusion.ts';
export { Inventory, type InventoryOptions } from './inventory.ts';
export { type InventoryPolicy, inventoryPolicySchema, parseRange, policySpecSchema } from './inventory-policy.ts';
export { emptyReport, type InventoryReport } from './inventory-report.ts';
export {
  type ConditionReading,
  type ConditionSubject,
  type FunctionCondition,
  type LinkCondition,
  linkConditions,
} from './link-conditions.ts';
export { explainNothingOffered } from './nothing-offered.ts';
export { OpenPeers } from './open-peers.ts';
export type { RatesRefusal } from './refused-rates.ts';
export type { HeldDevices, HeldFacts } from './survey.ts';
