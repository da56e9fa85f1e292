import { defined } from '../../lib/defined.ts';
import { type DialectDevice, nodeOf } from './device.ts';

/** Directory in which Multus and CNI plugins look on the host for the files of device plugins. */
export const deviceInfoDir = '/var/run/k8s.cni.cncf.io/devinfo/dp';
/** Readers run as root, and nothing modifies the files. */
export const deviceInfoMode = 0o444;

export interface DeviceInfoFile {
  /** Name of the file, below {@link deviceInfoDir}. */
  name: string;
  text: string;
}

/**
 * Returns a device-info file of version 1.1.0 for a PCI device. Readers find it by resource name and device id alone, which
 * is the PCI address. A writer removes an existing file first: other writers refuse to overwrite, and readers never see
 * part of one. Source: "Device Information Specification" of the Network Plumbing Working Group.
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
