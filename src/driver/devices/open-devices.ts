import { join } from 'node:path';
import { SimulatedNic, type SimulatedNicOptions } from '../../node/sriov/index.ts';
import { DeviceList, type DeviceListOptions } from './device-list.ts';

/** Settings of simulated devices, which replace the node's own. */
export interface SimulationSettings {
  /** Numbers of simulated devices; absent: the node's own devices are used. */
  simulate?: Pick<SimulatedNicOptions, 'numaNodes' | 'pfs' | 'vfsPerPf'> | undefined;
  /** Prefix of all simulated interface names. */
  simulatePrefix: string;
}

export type OpenDevicesOptions = DeviceListOptions & {
  host: SimulatedNicOptions['connection'];
  stateDir: string;
};

/**
 * Opens the device list of this node, and creates the devices first if they are simulated. The first scan may have failed.
 * @throws SriovError, NetlinkError if they cannot be simulated; NetdraError `policy-invalid`
 */
export async function openDevices(
  { nodeName, simulate, simulatePrefix: namePrefix }: SimulationSettings & { nodeName: string },
  { stateDir, ...options }: OpenDevicesOptions,
): Promise<DeviceList> {
  const dir = join(stateDir, 'simulated');
  const nic = simulate && new SimulatedNic({ ...simulate, nodeName, namePrefix, dir, connection: options.host });
  await nic?.start();
  const devices = new DeviceList(nic === undefined ? options : { ...options, nic });
  await devices.start();
  return devices;
}
