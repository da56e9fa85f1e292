import type { VfChange } from '../netlink/index.ts';
import { DeviceNodes } from './device-nodes.ts';
import { SriovError } from './errors.ts';
import { simulatedDriver } from './simulated-layout.ts';
import type { AccessWanted, VfAccess, VfAddress, VfSnapshot, VfWanted } from './vf-snapshot.ts';

/**
 * Control of simulated VFs, which have no settings on the host. Their MAC is set in the pod. Requests for anything that only
 * hardware has are refused, since the pod would not get it.
 */
export class SimulatedControl {
  readonly #nodes: DeviceNodes;

  constructor(nodes = new DeviceNodes()) {
    this.#nodes = nodes;
  }

  async snapshot(): Promise<VfSnapshot> {
    return { driver: simulatedDriver, vf: {} };
  }

  async configure({ pciAddress }: VfAddress, { driver = 'default', vf = {} }: VfWanted): Promise<void> {
    const { hardwareAddress: _inThePod, ...rest } = vf;
    const asked = [...(driver === 'default' ? [] : [`driver ${driver}`]), ...Object.keys(rest)];
    if (asked.length > 0) throw notSimulated(pciAddress, asked.join(', '));
  }

  async restore(): Promise<void> {}

  async settingsOf(): Promise<ReadonlyMap<number, VfChange>> {
    return new Map();
  }

  async setAgain({ pciAddress }: VfAddress): Promise<void> {
    throw notSimulated(pciAddress, 'settings of a PF');
  }

  async setLinkState({ pciAddress }: VfAddress): Promise<void> {
    throw notSimulated(pciAddress, 'a link state');
  }

  /** `vhost` works without a card: the other side of virtio devices is in the kernel. */
  async access({ pciAddress }: VfAddress, { vhost, rdma }: AccessWanted): Promise<VfAccess> {
    if (rdma) throw notSimulated(pciAddress, 'an RDMA device');
    return { nodes: vhost ? await this.#nodes.vhost() : [] };
  }

  async groupMembers(): Promise<string[]> {
    return [];
  }

  async mtuLimits(): Promise<[]> {
    return [];
  }
}

function notSimulated(pciAddress: string, what: string): SriovError {
  const message = `the simulated VF ${pciAddress} cannot have ${what}`;
  const hint = 'run without --simulate on a machine with SR-IOV';
  return new SriovError('not-simulated', message, { device: pciAddress, hint });
}
