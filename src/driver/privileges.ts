import type { AllocatedClaim } from '../kubeletplugin/index.ts';
import type { VfConfig } from '../state/index.ts';
import { DriverError } from './errors.ts';

/**
 * What only a DeviceClass may set unless the operator opens it to claims: it can reach beyond the pod, to the node or to
 * the network of others. Who may write a claim, the API says; who may write a class is an administrator.
 */
const isAsked = {
  /** vfio gives the device's memory access to a program, and takes the interface from the node. */
  driver: ({ driver }: VfConfig) => driver !== undefined,
  macAddress: ({ macAddress }: VfConfig) => macAddress !== undefined,
  'vf.trust': ({ vf }: VfConfig) => vf?.trust === true,
  'vf.spoofCheck': ({ vf }: VfConfig) => vf?.spoofCheck === false,
  /** Not the VF's: parts of the host's kernel that no pod reaches otherwise. */
  vhost: ({ vhost }: VfConfig) => vhost === true,
  /** They cannot leave the interface, but the kubelet refuses them to pods for want of the administrator's consent. */
  sysctls: ({ sysctls }: VfConfig) => sysctls !== undefined,
  /** Plugins run as root on the node, with paths that their configuration chooses. */
  cni: ({ cni }: VfConfig) => cni !== undefined,
  ipam: ({ ipam }: VfConfig) => ipam !== undefined,
  /** Who may write these objects, the API says, namespace by namespace: those of another one are not the user's. */
  'networkAttachmentDefinition.namespace': (
    { networkAttachmentDefinition: definition }: VfConfig,
    claimNamespace: string,
  ) => definition?.namespace !== undefined && definition.namespace !== claimNamespace,
  /** Files on the host under names that other software trusts, and what images of others were made for. */
  dialects: ({ dialects }: VfConfig) => dialects !== undefined,
} as const;

export type PrivilegedField = keyof typeof isAsked;
export const privilegedFields = Object.keys(isAsked) as PrivilegedField[];

/**
 * @param config as a claim has it
 * @param open privileged fields that claims may set
 * @throws DriverError `config-invalid` with the fields that are refused
 */
export function checkPrivileges(claim: AllocatedClaim, config: VfConfig, open: readonly PrivilegedField[]): void {
  const { namespace, name } = claim.identity;
  const refused = privilegedFields.filter((field) => isAsked[field](config, namespace) && !open.includes(field));
  if (refused.length === 0) return;
  throw new DriverError('config-invalid', `claim ${namespace}/${name} may not set ${refused.join(', ')}`, {
    claim: `${namespace}/${name}`,
    hint: 'set it in a DeviceClass, or let the operator open it with --open-claim-fields',
  });
}
