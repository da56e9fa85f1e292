import { type PciFunction, type Pf, SriovError, type Sysfs, type Vf } from '../../../node/sriov/index.ts';

/** The node's cards with SR-IOV, as far as they can be read. */
export interface Cards {
  pfs: (Pf & { names: string[] })[];
  vfs: Vf[];
  problems: SriovError[];
}

/** @throws SriovError `sysfs-unreadable` if nothing can be read */
export async function readCards(sysfs: Sysfs): Promise<Cards> {
  const cards: Cards = { pfs: [], vfs: [], problems: [] };
  const attempt = async (task: () => Promise<unknown>) => {
    try {
      await task();
    } catch (error) {
      if (!(error instanceof SriovError)) throw error;
      cards.problems.push(error);
    }
  };
  for (const address of (await sysfs.networkFunctions()).pfs) {
    await attempt(async () => {
      const pf = await sysfs.pf(address);
      const names = (await sysfs.interfaceNames(address)) ?? [];
      cards.pfs.push({ ...pf, names });
      for (const entry of pf.vfs) await attempt(async () => cards.vfs.push(await sysfs.vf(pf, entry)));
    });
  }
  return cards;
}

/** `ens1f0 (0000:3b:00.0)` */
export function nameCard({ pciAddress, names = [] }: Pick<PciFunction, 'pciAddress'> & { names?: string[] }): string {
  return names.length === 0 ? pciAddress : `${names.join('/')} (${pciAddress})`;
}
