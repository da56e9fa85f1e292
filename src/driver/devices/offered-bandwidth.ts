import type { CounterSet, Device } from '../../framework/resourceslice/index.ts';
import type { NetworkDevice } from '../../node/inventory/index.ts';
import { formatDeviceName } from '../../node/sriov/index.ts';

/** Name of a VF's capacity, in the driver's domain, and of its port's counter. Values are in bits per second. */
const name = 'bandwidth';
const quantity = (mbps: number) => ({ value: `${mbps}M` });

/**
 * Returns the guaranteed rate of a VF, twice: as capacity, which claims select by, and as consumption of its port's counter,
 * which the scheduler subtracts (KEP-4815).
 */
export function offeredBandwidth(device: NetworkDevice): Pick<Device, 'capacity' | 'consumesCounters'> {
  if (device.kind !== 'vf' || device.bandwidth === undefined) return {};
  const guarantee = { [name]: quantity(device.bandwidth.guaranteedMbps) };
  return { capacity: guarantee, consumesCounters: [{ counterSet: setName(device.pfAddress), counters: guarantee }] };
}

/**
 * Returns a counter set for each port whose VFs have guarantees. If VFs were offered with different speeds of the port, the
 * lowest one counts.
 */
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
