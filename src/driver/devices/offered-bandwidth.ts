import type { CounterSet, Device } from '../../framework/resourceslice/index.ts';
import type { NetworkDevice } from '../../node/inventory/index.ts';
import { formatDeviceName } from '../../node/sriov/index.ts';

/** Name of a VF's capacity, in the driver's domain, and of its port's counter. In bits per second. */
const name = 'bandwidth';
const quantity = (mbps: number) => ({ value: `${mbps}M` });

/** Returns the guarantee of a VF, by which claims select it, and which the scheduler takes from that of the port (KEP-4815). */
export function offeredBandwidth(device: NetworkDevice): Pick<Device, 'capacity' | 'consumesCounters'> {
  if (device.kind !== 'vf' || device.bandwidth === undefined) return {};
  const guarantee = { [name]: quantity(device.bandwidth.guaranteedMbps) };
  return { capacity: guarantee, consumesCounters: [{ counterSet: setName(device.pfAddress), counters: guarantee }] };
}

/** Returns one set for each port whose VFs have guarantees. Its speed is the lowest with which one of them was offered. */
export function portCounters(devices: readonly NetworkDevice[]): CounterSet[] {
  const ports = new Map<string, number>();
  for (const device of devices) {
    if (device.kind !== 'vf' || device.bandwidth === undefined) continue;
    const { portMbps } = device.bandwidth;
    ports.set(device.pfAddress, Math.min(portMbps, ports.get(device.pfAddress) ?? portMbps));
  }
  return [...ports].map(([pfAddress, mbps]) => ({ name: setName(pfAddress), counters: { [name]: quantity(mbps) } }));
}

function setName(pfAddress: string): string {
  return `port-${formatDeviceName(pfAddress)}`;
}
