/** PCI domain: four digits, or up to eight behind Intel VMD and on hypervisors. */
const domain = '[0-9a-f]{4,8}';
export const pciAddressPattern = new RegExp(`^${domain}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]$`);
const rootComplex = new RegExp(`^pci${domain}:[0-9a-f]{2}$`);

/** Returns whether a text is a PCI address with domain, in sysfs's form: `0000:3b:02.1`. */
export function isPciAddress(text: string): boolean {
  return pciAddressPattern.test(text);
}

/** Returns whether a text is the name of a root complex, in sysfs's form: `pci0000:3a`. */
export function isRootComplex(text: string): boolean {
  return rootComplex.test(text);
}

/**
 * Returns the name of a device in its pool, a DNS label: `0000:3b:02.1` → `0000-3b-02-1`. It does not depend on interface
 * names.
 */
export function formatDeviceName(pciAddress: string): string {
  return pciAddress.replaceAll(/[:.]/g, '-');
}

/** Default prefix of the names of simulated interfaces. */
export const simulatedPrefix = 'nsim';

/** Returns the alias of a simulated VF's link. The link is found by its alias, since veth links have no bus address. */
export function formatSimulatedAlias(pciAddress: string): string {
  return `netdra:${pciAddress}`;
}
