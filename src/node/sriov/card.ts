import { DeviceNodes } from './device-nodes.ts';
import { DriverBinding, type WriteFile } from './driver-binding.ts';
import { type HungWrite, KernelWriter, type KernelWriterOptions } from './kernel-writer.ts';
import { Sysfs } from './sysfs.ts';

/** Time for firmware to enable VFs, ms. */
const vfsOnMs = 120_000;

/** Access to the PCI functions of a node. */
export interface Card {
  sysfs: Sysfs;
  binding: DriverBinding;
  nodes: DeviceNodes;
  /** Writer of sysfs files, whose writes may never return. */
  writes: Disposable & { readonly hung: readonly HungWrite[] };
}

/** Opens the PCI functions in a sysfs tree. */
export function openCard(root: string, options: KernelWriterOptions): Card {
  const writes = new KernelWriter(options);
  const write: WriteFile = (path, text, device) => writes.write(path, text, device);
  return {
    sysfs: new Sysfs(root, (path, text, device) => writes.write(path, text, device, vfsOnMs), options.clock),
    binding: new DriverBinding(root, write, options.clock),
    nodes: new DeviceNodes(root),
    writes,
  };
}
