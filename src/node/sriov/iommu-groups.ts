import { join } from 'node:path';
import { listOptionalDir } from './sysfs-files.ts';

/** Members of IOMMU groups. A group is read once until something has changed. */
export class IommuGroups {
  readonly #root: string;
  readonly #isBridge: (pciAddress: string) => boolean;
  readonly #members = new Map<string, string[]>();

  /** @param root where sysfs is mounted */
  constructor(root: string, isBridge: (pciAddress: string) => boolean) {
    this.#root = root;
    this.#isBridge = isBridge;
  }

  /** To be called when a device appeared, vanished or changed its driver: any group may be different now. */
  forget(): void {
    this.#members.clear();
  }

  /** The other members of a group, without bridges, which need no vfio driver for a group to go to user space. */
  async peers(group: string, pciAddress: string): Promise<string[]> {
    const members =
      this.#members.get(group) ??
      (await listOptionalDir(join(this.#root, 'kernel/iommu_groups', group, 'devices'))) ??
      [];
    this.#members.set(group, members);
    return members.filter((member) => member !== pciAddress && !this.#isBridge(member));
  }
}
