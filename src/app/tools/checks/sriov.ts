import { explain } from '../../../lib/errors.ts';
import { type Finding, ok, problem, warning } from '../finding.ts';
import { type Cards, nameCard } from './cards.ts';

const check = 'SR-IOV';

/** @param simulated the driver runs with `--simulate`: real cards are not needed */
export function checkSriov({ pfs, problems }: Cards, simulated: boolean): Finding[] {
  const unread = problems.map((error) => problem(check, explain(error), 'look at the card in the log of the kernel'));
  if (pfs.length === 0 && unread.length === 0) {
    if (simulated) return [ok(check, 'no card has it; VFs are simulated')];
    const fix = 'switch SR-IOV on in the firmware of machine and card, or run the driver with --simulate';
    return [warning(check, 'no network card has it', fix)];
  }
  return [...pfs.map(findingOf), ...unread];
}

function findingOf(pf: Cards['pfs'][number]): Finding {
  const { pciAddress, driver, vfs, totalVfs } = pf;
  const message = `${nameCard(pf)}, ${driver ?? 'no driver'}: ${vfs.length} of ${totalVfs} VFs are on`;
  if (vfs.length > 0) return ok(check, message);
  if (totalVfs === 0) return warning(check, message, 'switch SR-IOV on in the firmware of the card');
  const file = `/sys/bus/pci/devices/${pciAddress}/sriov_numvfs`;
  return warning(check, message, `set numVfs in the inventory policy, or: echo ${Math.min(8, totalVfs)} > ${file}`);
}
