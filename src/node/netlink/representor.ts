/** Port names of the function's own ports: `p0`; `p0s1` for a part of a split port. */
const ownPort = /^p\d+(s\d+)?$/;

/**
 * Returns whether a link of a PCI function is a representor. It stands for another function at the embedded switch, such as a
 * VF, a subfunction or the host's PF of a DPU. Drivers register representors below the PF's own PCI device, so that the bus
 * address does not distinguish them from the PF's interface. Port names of representors differ between drivers (`pf0vf3`,
 * `c1pf0`, `pf0hpf`, `p0pf0vf3`); those of own ports do not, and with most drivers they have none.
 */
export function isRepresentor({ portName }: { portName?: string }): boolean {
  return portName !== undefined && portName !== '' && !ownPort.test(portName);
}
