import { isEthernetAddress, type Link } from '../netlink/index.ts';

/** Limits of a VF's MTU that come from one interface. */
export interface MtuLimit {
  minBytes: number;
  maxBytes: number;
  /** Interface that sets the limits, as text: `its PF ens1f0`. */
  of: string;
}

/**
 * Returns the MTU limits of a VF. Drivers of Ethernet cards refuse an MTU above the PF's, unless the VF has it already.
 * @param own the VF's interface, if it is on the host
 */
export function limitsOf(own: Link | undefined, pf: Link | undefined): MtuLimit[] {
  const limits: MtuLimit[] = [];
  if (own !== undefined) {
    const { name, minMtuBytes = 0, maxMtuBytes = Number.POSITIVE_INFINITY } = own;
    limits.push({ minBytes: minMtuBytes, maxBytes: maxMtuBytes, of: `its interface ${name}` });
  }
  if (pf !== undefined && isEthernetAddress(pf.hardwareAddress ?? '')) {
    const { name, mtuBytes } = pf;
    limits.push({ minBytes: 0, maxBytes: Math.max(mtuBytes, own?.mtuBytes ?? 0), of: `its PF ${name}` });
  }
  return limits;
}
