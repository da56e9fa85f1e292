import { onTestFinished } from 'vitest';
import { DeviceNodes, DriverBinding, VfHardware, type VfHardwareOptions } from '../../../../src/node/sriov/index.ts';
import { JumpingClock } from '../../../doubles/quirky-card.ts';
import { SriovCard, type SriovCardOptions } from '../../../doubles/sriov-card.ts';

/** A card whose first VF has `address`, and the driver of it, until the end of the test. */
export function openVf(
  options?: SriovCardOptions,
  hooks: Partial<Pick<VfHardwareOptions, 'onNotReset' | 'onAddressKept'>> = {},
) {
  const clock = new JumpingClock();
  const card = new SriovCard(options);
  onTestFinished(() => card[Symbol.dispose]());
  const { root, write, host, ethtool } = card;
  const hardware = new VfHardware({
    binding: new DriverBinding(root, write, clock),
    host,
    ethtool,
    clock,
    nodes: new DeviceNodes(root),
    ...hooks,
  });
  return { card, hardware, clock, address: card.address(0) };
}

/** The same, with a snapshot of the VF as it is before any claim. */
export async function openWithSnapshot(options?: SriovCardOptions) {
  const bench = openVf(options);
  return { ...bench, before: await bench.hardware.snapshot(bench.address) };
}
