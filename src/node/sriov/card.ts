import { DeviceNodes } from './device-nodes.ts';
import { DriverBinding, type WriteFile } from './driver-binding.ts';
import { type HungWrite, KernelWriter, type KernelWriterOptions } from './kernel-writer.ts';
import { Sysfs } from './sysfs.ts';

/** Firmware takes a while to enable VFs. */
const vfsOnMs = 120_000;

/** The PCI functions of a node: what the kernel shows of them, and how it is made to change them. */
export interface Card {
  sysfs: Sysfs;
  binding: DriverBinding;
  nodes: DeviceNodes;
  /** Writes that the kernel may never return from. */
  writes: Disposable & { readonly hung: readonly HungWrite[] };
}

/** PCI functions in a sysfs tree. */
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
