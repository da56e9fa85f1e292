import { defined } from '../../lib/defined.ts';
import { type DialectDevice, nodeOf } from './device.ts';

/** Host directory in which Multus and CNI plugins look for the device-info files of device plugins. */
export const deviceInfoDir = '/var/run/k8s.cni.cncf.io/devinfo/dp';
/** Permissions of a device-info file: its readers run as root, and nothing modifies it. */
export const deviceInfoMode = 0o444;

export interface DeviceInfoFile {
  /** Name of the file, below {@link deviceInfoDir}. */
  name: string;
  text: string;
}

/**
 * Returns a device-info file of version 1.1.0 for a PCI device. Readers find the file by resource name and device ID alone;
 * the device ID is the PCI address. An existing file must be removed first: other writers refuse to overwrite it, and readers
 * must never see a part of a file. Source: "Device Information Specification" of the Network Plumbing Working Group.
 */
export function deviceInfoFile(resourceName: string, device: DialectDevice): DeviceInfoFile {
  const { pciAddress, pfAddress, access } = device;
  const vhostNet = nodeOf(device, '/dev/vhost-net');
  const pci = {
    'pci-address': pciAddress,
    ...defined({ 'vhost-net': vhostNet, 'rdma-device': access?.rdmaDevice, 'pf-pci-address': pfAddress }),
  };
  return {
    name: `${resourceName.replaceAll('/', '-')}-${pciAddress.replaceAll('/', '-')}-device.json`,
    text: JSON.stringify({ type: 'pci', version: '1.1.0', pci }),
  };
}
