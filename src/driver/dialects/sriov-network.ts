import type { DialectsConfig } from '../model/index.ts';
import { type DialectDevice, type Env, type RdmaKind, rdmaNodes } from './device.ts';

/** Suffixes of variable names, by kind of RDMA file. */
const rdmaSuffixes: Record<RdmaKind, string> = { uverbs: 'UVERB', umad: 'UMAD', issm: 'ISSM', rdma_cm: 'CM' };

/**
 * Returns the variables that dra-driver-sriov gives to the containers of a request: the address and the files of each device.
 * The device's name is part of the variable's name, with `_` for `-`.
 */
export function sriovNetworkEnv(
  { networkAttachmentDefinition }: NonNullable<DialectsConfig['sriovNetwork']>,
  devices: readonly DialectDevice[],
): Env {
  const env: Env = {};
  for (const device of devices) {
    const name = device.name.replaceAll('-', '_');
    env[`SRIOVNETWORK_VF_DEVICE_${name}`] = device.pciAddress;
    const { vfio, rdmaDevice } = device.access ?? {};
    if (vfio !== undefined) env[`SRIOVNETWORK_${name}_VFIO_DEVICE`] = vfio.device;
    if (rdmaDevice !== undefined) env[`SRIOVNETWORK_${name}_RDMA_DEVICE`] = rdmaDevice;
    const nodes = rdmaNodes(device);
    for (const [kind, suffix] of Object.entries(rdmaSuffixes)) {
      const node = nodes[kind as RdmaKind];
      if (node !== undefined) env[`SRIOVNETWORK_${name}_RDMA_${suffix}`] = node;
    }
  }
  if (networkAttachmentDefinition !== undefined) env.SRIOVNETWORK_NET_ATTACH_DEF_NAME = networkAttachmentDefinition;
  return env;
}

/** Returns the variable that dra-driver-sriov gives to all containers of a pod with any of its claims. */
export function sriovNetworkPodEnv(devices: readonly DialectDevice[]): Env {
  return { SRIOVNETWORK_PCI_ADDRESSES: devices.map(({ pciAddress }) => pciAddress).join(',') };
}
