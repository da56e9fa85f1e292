import type { ResourceApi } from '../../framework/kube/index.ts';
import type { ClaimIdentity } from '../../framework/metadata/index.ts';
import type { DriftRecord } from '../drift/index.ts';
import type { NodePorts, NodeSettings } from './ports.ts';

/** Ports and settings of a node, and the objects that the parts of its driver share. */
export interface NodeContext extends NodePorts {
  settings: NodeSettings;
  /** Stack that disposes of the parts. */
  stack: AsyncDisposableStack;
  decorate: NonNullable<NodePorts['decorate']>;
  resources: ResourceApi;
  podUidsOf: (claim: ClaimIdentity) => string[];
  /** Settings of VFs in pods that differ from class and claim. */
  drift: DriftRecord;
}
