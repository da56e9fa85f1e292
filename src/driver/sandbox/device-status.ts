import type { DeviceStatus } from '../../framework/claimstatus/index.ts';
import { defined } from '../../lib/defined.ts';
import type { StoredClaim, StoredDevice } from '../state/index.ts';

/**
 * The status of a claim's VFs: the network data is that of its metadata files.
 * @param failure why they are not all in their pod, as a message for users
 */
export function toDeviceStatuses({ devices }: StoredClaim, failure?: string): DeviceStatus[] {
  return devices.map((device) => {
    const { pool, name, attachment } = device;
    const networkData = attachment?.networkData;
    const facts = { pool, device: name, data: toData(device) };
    return failure === undefined && networkData !== undefined
      ? { ...facts, ready: true, reason: 'Attached', networkData }
      : { ...facts, ready: false, reason: 'NotAttached', message: failure ?? 'it is not in the network of the pod' };
  });
}

function toData({ pciAddress, config, access }: StoredDevice): object {
  const attach = config.attach ?? 'netlink';
  return { pciAddress, attach, ...defined({ vlan: config.vf?.vlan, driver: access?.driver }) };
}
