import type { InventoryReport, PfSummary } from './inventory-report.ts';

/** Explains why a node offers no device, with remedies. */
export function explainNothingOffered({ pfs, excluded, problems, warnings }: InventoryReport): string {
  const count = (found: readonly unknown[], what: string) => (found.length === 0 ? [] : [`${what}: ${found.length}`]);
  const reasons = [
    ...pfs.filter(({ numVfs }) => numVfs === 0).map(withoutVfs),
    ...count(excluded, 'devices that are excluded, each with its reason'),
    ...count(problems, 'problems, each with a hint'),
    ...count(warnings, 'warnings'),
  ];
  if (pfs.length > 0 || excluded.length > 0 || problems.length > 0) return reasons.join('; ');
  const none =
    'no network card has SR-IOV: switch it on in the firmware of machine and card, or let a rule of nics in the inventory policy select whole NICs; netdra doctor says more';
  return [none, ...reasons].join('; ');
}

function withoutVfs({ pciAddress, names: [name], totalVfs }: PfSummary): string {
  const pf = name === undefined ? `PF ${pciAddress}` : `PF ${name} (${pciAddress})`;
  if (totalVfs === 0) return `${pf} can have no VFs: switch SR-IOV on in the firmware of the card`;
  return `${pf} has 0 of ${totalVfs} VFs: set numVfs in the inventory policy, or switch VFs on with the tools of the node`;
}
