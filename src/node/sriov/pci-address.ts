/** Domains have four digits, or up to eight behind Intel VMD and on hypervisors. */
const domain = '[0-9a-f]{4,8}';
export const pciAddressPattern = new RegExp(`^${domain}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]$`);
const rootComplex = new RegExp(`^pci${domain}:[0-9a-f]{2}$`);

/** Whether a text is a PCI address with domain, as sysfs writes it: `0000:3b:02.1`. */
export function isPciAddress(text: string): boolean {
  return pciAddressPattern.test(text);
}

/** Whether a text is the name of a root complex, as sysfs writes it: `pci0000:3a`. */
export function isRootComplex(text: string): boolean {
  return rootComplex.test(text);
}

/** The name of a device in its pool, a DNS label: `0000:3b:02.1` → `0000-3b-02-1`. Independent of interface names. */
export function formatDeviceName(pciAddress: string): string {
  return pciAddress.replaceAll(/[:.]/g, '-');
}

/** What names of simulated interfaces start with, unless the settings say otherwise. */
export const simulatedPrefix = 'nsim';

/** The alias on the link of a simulated VF: veth links have no bus address by which they could be found. */
export function formatSimulatedAlias(pciAddress: string): string {
  return `netdra:${pciAddress}`;
}
