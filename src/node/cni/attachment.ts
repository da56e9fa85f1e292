import { isAbsolute } from 'node:path';
import { assertInterfaceName, NetlinkError } from '../netlink/index.ts';
import { CniError } from './errors.ts';
import type { CniIpam, CniNetwork } from './network.ts';

/** An interface of a pod. */
interface PodInterface {
  /** The runtime's ID of the pod's sandbox. */
  containerId: string;
  /** Path of the pod's network namespace. For a DEL, it may be empty, or the namespace may no longer exist. */
  netnsPath: string;
  /** Name of the interface in the pod. */
  ifName: string;
  /** `CNI_ARGS` for plugins, e.g. `K8S_POD_NAME`. Plugins ignore unknown names. */
  args?: Record<string, string>;
  /** Values for `runtimeConfig`, by capability. A plugin gets the capabilities that its configuration declares. */
  capabilities?: Record<string, unknown>;
}

/** An interface of a pod in a network. */
export interface CniAttachment extends PodInterface {
  network: CniNetwork;
  /** PCI address of the device. Plugins get it as `deviceID`, and in `runtimeConfig` if they declare that capability. */
  deviceId?: string;
}

/** Request for addresses of a pod's interface that no CNI plugin attaches. */
export interface CniIpamAttachment extends PodInterface {
  ipam: CniIpam;
}

/** An operation of CNI: a chain of plugins, or an IPAM plugin as a chain of one. */
export interface CniTask {
  kind: 'chain' | 'ipam';
  attachment: CniAttachment;
}

/**
 * Returns the task of attaching by a chain of plugins. Its attachment is a copy that can be stored and compared.
 * @throws CniError `cni-attachment-invalid`
 */
export function chainTask(attachment: CniAttachment): CniTask {
  assertAttachment(attachment);
  return { kind: 'chain', attachment: JSON.parse(JSON.stringify(attachment)) };
}

/**
 * Returns the task of calling an IPAM plugin. The call is like that of an attaching plugin: the `ipam` section is inside a
 * network configuration.
 * @throws CniError `cni-attachment-invalid`
 */
export function ipamTask({ ipam, ...rest }: CniIpamAttachment): CniTask {
  const capabilities = Object.fromEntries(Object.keys(rest.capabilities ?? {}).map((name) => [name, true]));
  const plugin = { type: ipam.ipam.type, capabilities, ipam: ipam.ipam };
  const network: CniNetwork = { cniVersion: ipam.cniVersion, name: ipam.name, plugins: [plugin] };
  return { ...chainTask({ ...rest, network }), kind: 'ipam' };
}

/** Checks values that become environment variables of plugins, or parts of file names of plugins. */
function assertAttachment({ network, containerId, netnsPath, ifName, args = {} }: CniAttachment): void {
  const refuse = (problem: string, hint: string, cause?: unknown) =>
    new CniError('cni-attachment-invalid', `cannot attach to CNI network ${network.name}: ${problem}`, {
      cause,
      hint,
      network: network.name,
    });
  // Source: CNI specification 1.1.0, section 2, "Parameters".
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(containerId)) {
    throw refuse(`${JSON.stringify(containerId)} is not a container id`, 'use letters, digits, "_", "." and "-"');
  }
  try {
    assertInterfaceName(ifName);
  } catch (cause) {
    const hint = cause instanceof NetlinkError ? (cause.hint ?? '') : '';
    throw refuse(`${JSON.stringify(ifName)} is not an interface name`, hint, cause);
  }
  if (netnsPath !== '' && (!isAbsolute(netnsPath) || netnsPath.includes('\0'))) {
    throw refuse(`${JSON.stringify(netnsPath)} is not an absolute path`, 'use the path of the network namespace');
  }
  for (const [key, value] of Object.entries(args)) {
    if (/^[^;=\0]+$/.test(key) && !/[;\0]/.test(value)) continue;
    throw refuse(`argument ${JSON.stringify(`${key}=${value}`)}`, 'use neither ";" nor, in the key, "="');
  }
}

/** Returns an attachment as text for messages: `net1 of container 4f1c…`. */
export function describeAttachment({ ifName, containerId }: CniAttachment): string {
  return `${ifName} of container ${containerId}`;
}
