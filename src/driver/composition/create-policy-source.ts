import { join } from 'node:path';
import { defined } from '../../lib/defined.ts';
import { PolicyFile, type PolicySource } from '../devices/policy-file.ts';
import { PolicyObjects } from '../policy/policy-objects.ts';
import type { NodePorts, NodeSettings } from './ports.ts';

export interface PolicySourceParts extends Pick<NodePorts, 'clock' | 'logger' | 'random' | 'kube' | 'disk'> {
  settings: NodeSettings;
  /** Gets the source. */
  stack: AsyncDisposableStack;
}

/** The objects of the API server, if they are wanted; otherwise the file of the settings, if there is one. */
export function createPolicySource({ settings, stack, ...parts }: PolicySourceParts): PolicySource | undefined {
  const { nodeName: node, inventoryPolicy: filePath, stateDir } = settings;
  const { clock, logger, random, kube } = parts;
  const { files } = parts.disk;
  if (!settings.policyObjects) return filePath === undefined ? undefined : new PolicyFile(filePath, files);
  const statePath = join(stateDir, 'policy.json');
  return stack.use(
    new PolicyObjects({ clock, logger, random, kube, node, files, statePath, ...defined({ filePath }) }),
  );
}
