import { join } from 'node:path';
import { defined } from '../../lib/defined.ts';
import { PolicyFile, type PolicySource } from '../devices/policy-file.ts';
import { PolicyObjects } from '../policy/policy-objects.ts';
import type { NodeContext } from './node-context.ts';

/**
 * Creates the source of the inventory policy: objects of the API server if the settings ask for them, otherwise the policy
 * file; `undefined` if there is none.
 */
export function createPolicySource({ settings, stack, ...ports }: NodeContext): PolicySource | undefined {
  const { nodeName: node, inventoryPolicy: filePath, stateDir } = settings;
  const { clock, logger, random, kube } = ports;
  const { files } = ports.disk;
  if (!settings.policyObjects) return filePath === undefined ? undefined : new PolicyFile(filePath, files);
  const statePath = join(stateDir, 'policy.json');
  return stack.use(
    new PolicyObjects({ clock, logger, random, kube, node, files, statePath, ...defined({ filePath }) }),
  );
}
