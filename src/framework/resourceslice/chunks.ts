import type { Device, Pool, SliceContent } from './model.ts';
import { maxSliceSize, sliceLimits } from './validate.ts';

/**
 * Splits a pool into slices: those with counters, then those with devices. Returns at least one, since a pool without a slice
 * does not exist. Devices stay in their present slice unless this would need an additional slice: adding or removing a device
 * then does not move all following devices.
 * @param published present content of the pool's slices, in order
 */
export function cutPool(pool: Pool, published: SliceContent[]): SliceContent[] {
  const { devices, sharedCounters = [] } = pool;
  const counters = cut(sharedCounters, sliceLimits.counterSets).map((sets) => ({ sharedCounters: sets }));
  const size = pool.maxDevicesPerSlice ?? maxSliceSize(devices);
  const places = new Map<string, number>();
  for (const [index, content] of published.slice(counters.length).entries()) {
    for (const { name } of content.devices ?? []) places.set(name, index);
  }
  const chunks = cutInPlace(devices, places, size) ?? cut(devices, size);
  const slices = [...counters, ...chunks.map((chunk) => ({ devices: chunk }))];
  return slices.length === 0 ? [{ devices: [] }] : slices;
}

function cut<T>(items: T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, index) =>
    items.slice(index * size, (index + 1) * size),
  );
}

/**
 * Leaves devices in their slices; a new device joins the slice of the device before it.
 * @returns `undefined` if a slice would be too large
 */
function cutInPlace(devices: Device[], places: ReadonlyMap<string, number>, size: number): Device[][] | undefined {
  const chunks: Device[][] = Array.from({ length: Math.ceil(devices.length / size) }, () => []);
  let last = 0;
  for (const device of devices) {
    let place = places.get(device.name) ?? last;
    while (chunks[place]?.length === size) place++;
    // The order of devices matters more than their slices.
    if (place < last || chunks[place] === undefined) return undefined;
    chunks[place]?.push(device);
    last = place;
  }
  return chunks.some((chunk) => chunk.length === 0) ? undefined : chunks;
}
