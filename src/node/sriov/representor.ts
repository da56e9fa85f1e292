import type { Link } from '../netlink/index.ts';

/** Port names as the kernel gives them: `pf0vf3`, with a controller `c1pf0vf3`; `pf0sf88` for subfunctions. */
const representorPort = /^(c\d+)?pf\d+(vf|sf)\d+$/;

/**
 * Whether the link represents a VF at the PF's embedded switch. Drivers (mlx5, ice, nfp) register representors below
 * the PF's own PCI device, so their bus address does not distinguish them from the PF's interface.
 */
export function isRepresentor({ portName }: Pick<Link, 'portName'>): boolean {
  return portName !== undefined && representorPort.test(portName);
}
