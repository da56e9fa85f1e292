import { isKubeError } from '../../framework/kube/index.ts';
import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import { parseCniNetwork } from '../../node/cni/index.ts';
import { DriverError, type VfConfig } from '../model/index.ts';

/** The part of a `k8s.cni.cncf.io/v1` NetworkAttachmentDefinition that netdra uses. */
export interface NetworkAttachmentDefinition {
  spec?: {
    /**
     * CNI network configuration as JSON text. Its type is unchecked, since clusters can have the CustomResourceDefinition
     * without a schema.
     */
    config?: unknown;
  } | null;
}

/** Reader of NetworkAttachmentDefinitions from the API server. */
export interface NetworkAttachmentReader {
  /** Returns a NetworkAttachmentDefinition. @throws KubeError `api-not-found`, `api-unserved`, `api-forbidden`, … */
  readNetworkAttachment(namespace: string, name: string, signal: AbortSignal): Promise<NetworkAttachmentDefinition>;
}

/**
 * Returns the config with the network configuration of its NetworkAttachmentDefinition in `cni`; the same config if it names
 * no definition. The driver reads and stores the definition at prepare: attaching and detaching then do not depend on the API
 * server, or on an object that may have changed.
 * @throws DriverError `network-attachment-unusable`; CniError `cni-config-invalid`
 */
export async function resolveNetworkAttachment(
  config: VfConfig,
  claim: AllocatedClaim,
  reader: NetworkAttachmentReader,
  signal: AbortSignal,
): Promise<VfConfig> {
  const { networkAttachmentDefinition: reference } = config;
  if (reference === undefined) return config;
  const { name, namespace = claim.identity.namespace } = reference;
  const subject = claimName(claim.identity);
  const definition = await reader.readNetworkAttachment(namespace, name, signal).catch((cause: unknown) => {
    throw unreadable(subject, `${namespace}/${name}`, cause);
  });
  const text = definition.spec?.config;
  if (typeof text !== 'string' || text.trim() === '') {
    const message = `claim ${subject}: NetworkAttachmentDefinition ${namespace}/${name} has no text in spec.config`;
    const hint =
      'write the network configuration into spec.config: netdra does not read configuration files on the node';
    throw new DriverError('network-attachment-unusable', message, { claim: subject, hint });
  }
  // A configuration without a name gets the object's name, as with Multus: IPAM plugins keep leases under that name.
  const of = `NetworkAttachmentDefinition ${namespace}/${name}, for claim ${subject}`;
  return { ...config, cni: { ...parseCniNetwork(text, of, { defaultName: name }) } };
}

function unreadable(claim: string, definition: string, cause: unknown): DriverError {
  const fail = (problem: string, hint?: string) => {
    const message = `claim ${claim}: NetworkAttachmentDefinition ${definition} ${problem}`;
    return new DriverError('network-attachment-unusable', message, { claim, cause, retriable: true, hint });
  };
  if (isKubeError(cause, 'api-not-found')) return fail('does not exist', 'create it, or correct the VFConfig');
  if (isKubeError(cause, 'api-unserved')) {
    return fail('cannot exist', 'the cluster lacks its CustomResourceDefinition, which comes with Multus');
  }
  if (isKubeError(cause, 'api-forbidden')) {
    const right = 'verb get for network-attachment-definitions of k8s.cni.cncf.io';
    return fail('may not be read by the driver', `its role lacks the ${right}`);
  }
  return fail('cannot be read');
}
