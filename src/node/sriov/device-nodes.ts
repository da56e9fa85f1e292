import { basename, join } from 'node:path';
import { defined } from '../../lib/defined.ts';
import { SriovError } from './errors.ts';
import { readRdmaNetnsMode } from './rdma-mode.ts';
import { linkTarget, listOptionalDir, readOptionalText } from './sysfs-files.ts';

/** Access from user space to a VF that is bound to vfio-pci or a variant of it. */
export interface VfioAccess {
  /** VFIO device file: `/dev/vfio/42`, `/dev/vfio/noiommu-0`; on a kernel without group files, `/dev/vfio/devices/vfio0`. */
  device: string;
  /** Number of the IOMMU group. */
  iommuGroup: string;
  /** Device files that a container needs for VFIO: those for groups, and those for iommufd. */
  nodes: string[];
}

/** RDMA access of a VF that has a kernel driver. */
export interface RdmaAccess {
  /** Name of the RDMA device, such as `mlx5_3`. */
  device: string;
  nodes: string[];
}

/** Name of the group of a device without an IOMMU, from the kernel's vfio.c. */
const noIommuGroupName = 'vfio-noiommu';

/**
 * Finds the character devices that users of a VF need. Reads their names from sysfs (`uevent`), since `/dev` in the driver's
 * container is not the host's.
 */
export class DeviceNodes {
  readonly #root: string;

  /** @param root mount point of sysfs */
  constructor(root = '/sys') {
    this.#root = root;
  }

  /**
   * Returns the VFIO files of a function. @param pciAddress PCI address of a function that is bound to a vfio driver
   * @throws SriovError `device-node-missing`
   */
  async vfio(pciAddress: string): Promise<VfioAccess> {
    const target = await linkTarget(join(this.#deviceDir(pciAddress), 'iommu_group'));
    const iommuGroup = target && basename(target);
    const group = await this.#vfioGroupNode(pciAddress, iommuGroup);
    const byDevice = await this.#nodesIn(join(this.#deviceDir(pciAddress), 'vfio-dev'));
    const container = group === undefined ? undefined : await this.#classNode('misc', 'vfio');
    const iommufd = byDevice.length === 0 ? undefined : await this.#classNode('misc', 'iommu');
    const device = group ?? byDevice[0];
    if (device === undefined || iommuGroup === undefined) {
      throw missing(pciAddress, `${pciAddress} has no device file for vfio`, 'see the kernel log for vfio-pci');
    }
    const nodes = [container, group, ...byDevice, iommufd].filter((node) => node !== undefined);
    return { device, iommuGroup, nodes };
  }

  /**
   * Returns the verbs files of a function, and the file of the connection manager if the kernel has it. Leaves out `umadN`,
   * through which a program could manage a fabric.
   * @throws SriovError `device-node-missing`, retriable, since the RDMA device may appear some time after the driver was
   * bound; `rdma-unusable`
   */
  async rdma(pciAddress: string): Promise<RdmaAccess> {
    const device = await this.rdmaDevice(pciAddress);
    if (device !== undefined) await this.#checkUsable(pciAddress, device);
    const verbs = await this.#nodesIn(join(this.#deviceDir(pciAddress), 'infiniband_verbs'));
    if (device === undefined || verbs.length === 0) {
      const what = device === undefined ? 'no RDMA device' : `the RDMA device ${device}, but no verbs for it`;
      const hint = device === undefined ? 'load the RDMA driver of the card, such as mlx5_ib' : 'modprobe ib_uverbs';
      throw missing(pciAddress, `${pciAddress} has ${what}`, hint, true);
    }
    const manager = await this.#classNode('misc', 'rdma_cm');
    return { device, nodes: [...verbs, ...(manager === undefined ? [] : [manager])] };
  }

  /**
   * Returns the name of the function's RDMA device; `undefined` if it has none. udev may change the name after the device has
   * appeared.
   */
  async rdmaDevice(pciAddress: string): Promise<string | undefined> {
    return (await listOptionalDir(join(this.#deviceDir(pciAddress), 'infiniband')))?.[0];
  }

  /**
   * Returns the device files that a container needs for a virtio device whose other side is in the kernel.
   * @throws SriovError `device-node-missing` with the module to load
   */
  async vhost(): Promise<string[]> {
    const names = ['vhost-net', 'tun'];
    const found = await Promise.all(names.map((name) => this.#classNode('misc', name)));
    const lacking = names.filter((_, index) => found[index] === undefined);
    if (lacking.length > 0) {
      // The name of a module is the name of its device, with `_` for `-`.
      const hint = `modprobe ${lacking.join(' ').replaceAll('-', '_')}`;
      throw missing(undefined, `this node has no device file for ${lacking.join(' and ')}`, hint);
    }
    return found.filter((node) => node !== undefined);
  }

  /**
   * Checks that a pod can use the RDMA device. In exclusive mode, verbs find the device only in its own network namespace.
   * Without a node GUID, the connection manager skips the device, and an InfiniBand port does not become active.
   */
  async #checkUsable(device: string, name: string): Promise<void> {
    const unusable = (why: string, hint: string) =>
      new SriovError('rdma-unusable', `RDMA device ${name} of ${device} ${why}`, { device, hint });
    if ((await readRdmaNetnsMode(this.#root)) === 'exclusive') {
      throw unusable(
        'is visible in one network namespace only, since this node is in exclusive mode',
        'netdra does not move RDMA devices: boot with the module option ib_core netns_mode=1, or let claims select rdmaNetnsMode "shared"',
      );
    }
    const guid = await readOptionalText(join(this.#deviceDir(device), 'infiniband', name, 'node_guid'));
    if (guid !== undefined && /^[0:]+$/.test(guid)) {
      throw unusable(
        `has the node GUID ${guid}`,
        'Ethernet: set macAddress, from which mlx5 derives one. InfiniBand: ip link set PF vf N node_guid and port_guid, then bind its driver again',
      );
    }
  }

  async #vfioGroupNode(pciAddress: string, group: string | undefined): Promise<string | undefined> {
    if (group === undefined) return undefined;
    const name = await readOptionalText(join(this.#deviceDir(pciAddress), 'iommu_group/name'));
    return await this.#classNode('vfio', name === noIommuGroupName ? `noiommu-${group}` : group);
  }

  async #classNode(className: string, name: string): Promise<string | undefined> {
    return await nodeOf(join(this.#root, 'class', className, name));
  }

  async #nodesIn(dir: string): Promise<string[]> {
    const nodes = ((await listOptionalDir(dir)) ?? []).map((name) => nodeOf(join(dir, name)));
    return (await Promise.all(nodes)).filter((node) => node !== undefined);
  }

  #deviceDir(pciAddress: string): string {
    return join(this.#root, 'bus/pci/devices', pciAddress);
  }
}

/**
 * Returns the path of a device file below `/dev`; `undefined` for a device without a file, such as `vfio-dev` without
 * iommufd.
 */
async function nodeOf(dir: string): Promise<string | undefined> {
  const [, name] = /^DEVNAME=(.+)$/m.exec((await readOptionalText(join(dir, 'uevent'))) ?? '') ?? [];
  return name === undefined ? undefined : `/dev/${name}`;
}

function missing(device: string | undefined, message: string, hint: string, retriable = false): SriovError {
  return new SriovError('device-node-missing', message, { hint, retriable, ...defined({ device }) });
}
