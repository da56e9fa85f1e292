import { defined } from '../../lib/defined.ts';
import type { DialectsConfig } from '../model/index.ts';
import { type DialectDevice, type Env, nodeOf, rdmaNodes } from './device.ts';

/**
 * Returns the variables of the SR-IOV network device plugin for the devices of one resource: their PCI addresses, separated
 * by commas, and their details as JSON, unless `info` is false.
 * Source: sriov-network-device-plugin, README "Pod device information", and its resource server.
 */
export function devicePluginEnv(
  { resourceName, info = true }: NonNullable<DialectsConfig['devicePlugin']>,
  devices: readonly DialectDevice[],
): Env {
  // The name is `PCIDEVICE_INTEL_COM_SRIOV_DPDK` for `intel.com/sriov_dpdk`. A `-` stays, although shells cannot name such a
  // variable.
  const name = `PCIDEVICE_${resourceName.replaceAll(/[./]/g, '_').toUpperCase()}`;
  const addresses = devices.map(({ pciAddress }) => pciAddress).join(',');
  if (!info) return { [name]: addresses };
  const details = Object.fromEntries(devices.map((device) => [device.pciAddress, deviceInfo(device)]));
  return { [name]: addresses, [`${name}_INFO`]: JSON.stringify(details) };
}

function deviceInfo(device: DialectDevice): Record<string, Record<string, string>> {
  const { pciAddress, access } = device;
  const rdma = { ...rdmaNodes(device), ...defined({ rdma_dev: access?.rdmaDevice }) };
  const vhost = defined({
    'net-mount': nodeOf(device, '/dev/vhost-net'),
    'tun-mount': nodeOf(device, '/dev/net/tun'),
  });
  const vfio = access?.vfio && {
    ...defined({ mount: nodeOf(device, '/dev/vfio/vfio') }),
    'dev-mount': access.vfio.device,
  };
  return {
    generic: { deviceID: pciAddress },
    ...(vfio === undefined ? {} : { vfio }),
    ...(Object.keys(rdma).length === 0 ? {} : { rdma }),
    ...(Object.keys(vhost).length === 0 ? {} : { vhost }),
  };
}
