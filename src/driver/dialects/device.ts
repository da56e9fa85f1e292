/** A prepared device, as dialects need it. The driver's `StoredDevice` has these fields. */
export interface DialectDevice {
  /** Name of the device in its pool, such as `0000-3b-02-1`. */
  name: string;
  /** PCI address with domain, e.g. `0000:3b:02.1`. */
  pciAddress: string;
  /** PCI address of the PF, if the device is a VF. */
  pfAddress?: string;
  access?: {
    /** Access through vfio: `device` is the path of the group's file. Absent: the device is not for user space. */
    vfio?: { device: string };
    /** RDMA device, e.g. `mlx5_3` */
    rdmaDevice?: string;
    /** Paths of character devices that containers get. */
    nodes: readonly string[];
  };
}

/** Environment variables by name. */
export type Env = Record<string, string>;

/** Kinds of RDMA files: the prefixes of their names. Source: kernel, drivers/infiniband/core. */
const rdmaKinds = ['uverbs', 'umad', 'issm', 'rdma_cm'] as const;
export type RdmaKind = (typeof rdmaKinds)[number];

/** Returns the first RDMA file of each kind among a device's nodes. */
export function rdmaNodes({ access }: DialectDevice): Partial<Record<RdmaKind, string>> {
  const found: Partial<Record<RdmaKind, string>> = {};
  for (const node of access?.nodes ?? []) {
    const file = /^\/dev\/infiniband\/(\w+)$/.exec(node)?.[1] ?? '';
    const kind = rdmaKinds.find((each) => file.startsWith(each));
    if (kind !== undefined) found[kind] ??= node;
  }
  return found;
}

/** Returns the path if containers with the device get a device node at this path, otherwise `undefined`. */
export function nodeOf({ access }: DialectDevice, path: string): string | undefined {
  return access?.nodes.find((node) => node === path);
}
