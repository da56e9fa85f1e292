import { join } from 'node:path';
import { defined } from '../../lib/defined.ts';
import type { PolicySource } from '../devices/policy-file.ts';
import { PolicyObjects } from '../policy/policy-objects.ts';
import type { NodePorts, NodeSettings } from './ports.ts';

export interface PolicySourceParts extends Pick<NodePorts, 'clock' | 'logger' | 'random' | 'kube'> {
  settings: NodeSettings;
  /** Gets the source. */
  stack: AsyncDisposableStack;
}

/** The objects of the API server, if they are wanted; otherwise the file of the settings is the source. */
export function createPolicySource({ settings, stack, ...parts }: PolicySourceParts): PolicySource | undefined {
  const { nodeName: node, inventoryPolicy: filePath, stateDir } = settings;
  if (!settings.policyObjects) return undefined;
  return stack.use(
    new PolicyObjects({
      ...{ ...parts, node, statePath: join(stateDir, 'policy.json') },
      ...defined({ filePath }),
    }),
  );
}
