import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { type DriverError, refusal, type VfConfig } from '../model/index.ts';
import { type CniUse, cniUses } from './cni-uses.ts';

/** The operator's rules for CNI plugins, which run as root on the node. `'*'` in a list allows everything. */
export interface CniRules {
  uses: readonly CniUse[];
  /** File names of the plugins that may run. */
  allowedPlugins: readonly string[];
  /**
   * Namespaces whose NetworkAttachmentDefinitions may name the plugins that run. Whoever can write these objects decides on
   * the plugins.
   */
  definitionNamespaces: readonly string[];
}

export const allCni: CniRules = { uses: cniUses, allowedPlugins: ['*'], definitionNamespaces: ['*'] };

/**
 * Checks everything that is known before the NetworkAttachmentDefinition is read.
 * @throws DriverError `cni-refused`
 */
export function checkCniUse(claim: AllocatedClaim, config: VfConfig, rules: CniRules): void {
  const { attach, ipam, networkAttachmentDefinition } = config;
  if (attach === 'cni' && !rules.uses.includes('attach')) {
    throw refused(
      claim,
      'attach: cni is switched off',
      'the administrator of the cluster can switch it on: cni.enabled in the chart',
    );
  }
  if (ipam !== undefined && !rules.uses.includes('ipam')) {
    throw refused(
      claim,
      'ipam is switched off',
      'the administrator of the cluster can switch it on: cni.ipamEnabled in the chart',
    );
  }
  if (networkAttachmentDefinition === undefined) return;
  const { namespace = claim.identity.namespace } = networkAttachmentDefinition;
  if (!isListed(rules.definitionNamespaces, namespace)) {
    const what = `NetworkAttachmentDefinitions of namespace ${namespace} may not say which plugins run`;
    throw refused(
      claim,
      what,
      'the administrator of the cluster can add the namespace to cni.definitionNamespaces in the chart',
    );
  }
}

/**
 * Checks that the operator allows the plugins.
 * @param types types of all plugins that run, including IPAM plugins that another plugin calls
 * @throws DriverError `cni-refused`
 */
export function checkCniPlugins(claim: AllocatedClaim, types: readonly string[], { allowedPlugins }: CniRules): void {
  for (const type of types) {
    if (isListed(allowedPlugins, type)) continue;
    const hint = 'the administrator of the cluster can add the plugin to cni.allowedPlugins in the chart';
    throw refused(claim, `the CNI plugin ${type} is not allowed`, hint);
  }
}

function isListed(list: readonly string[], name: string): boolean {
  return list.includes('*') || list.includes(name);
}

function refused(claim: AllocatedClaim, what: string, hint: string): DriverError {
  return refusal(claim, 'cni-refused', `: ${what}`, { hint });
}
