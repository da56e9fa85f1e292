import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../../src/lib/clock.ts';
import type { EntryTable, RtnlConnection, VfChange } from '../../../../src/node/netlink/index.ts';
import { DriverBinding, VfHardware } from '../../../../src/node/sriov/index.ts';
import { TestNode } from './test-node.ts';

const nic = { pciAddress: '0000:1f:00.0' };

/** @param tooMany entries of which the host has more than are read */
function hardwareOf(node: TestNode, tooMany?: string): VfHardware {
  const calls = async () => {
    throw new Error('nothing may be set by netlink');
  };
  const host = {
    ...node.connection,
    link: async () => (await node.connection.links()).find(({ parentDevice }) => parentDevice === nic.pciAddress),
    qdisc: async () => undefined,
    addresses: async () => [],
    entries: async ({ name }: EntryTable<unknown>) => (tooMany === name ? undefined : []),
    setVf: calls,
  } as unknown as RtnlConnection;
  return new VfHardware({ binding: new DriverBinding(node.root), host, clock: systemClock });
}
const withDriver = (driver: string) => [{ ...nic, driver, iommuGroup: '7', interfaces: [{ name: 'ensP' }] }];

describe('VfHardware for a plain NIC', () => {
  it('reads driver and interface without asking a PF', async () => {
    using node = new TestNode(withDriver('igb'));
    const before = await hardwareOf(node).snapshot(nic);
    expect(before).toMatchObject({ driver: 'igb', vf: {}, link: { name: 'ensP', mtuBytes: 1500 } });
    expect(await hardwareOf(node).info(nic)).toBeUndefined();
    expect(node.vfInfoRequests).toBe(0);
  });

  it('reads the host configuration of the NIC only on request, and fails if a part is unreadable', async () => {
    using node = new TestNode(withDriver('igb'));
    expect((await hardwareOf(node).snapshot(nic)).link).not.toHaveProperty('hostConfig');
    const { link } = await hardwareOf(node).snapshot(nic, { withHostConfig: true });
    expect(link).toMatchObject({ hostConfig: { addresses: [], routes: [], neighbors: [] } });
    await expect(hardwareOf(node, 'routes').snapshot(nic, { withHostConfig: true })).rejects.toMatchObject({
      message: expect.stringMatching(
        /^cannot keep the configuration of the host on ensP \(#\d+\): it has 4096 or more routes$/,
      ),
      retriable: true,
    });
  });

  it('restores a missing NIC only if no host configuration would be lost', async () => {
    using node = new TestNode(withDriver('igb'));
    const control = hardwareOf(node);
    const [plain, kept] = [await control.snapshot(nic), await control.snapshot(nic, { withHostConfig: true })];
    rmSync(join(node.root, 'bus/pci/devices', nic.pciAddress), { recursive: true });
    await control.restore(nic, plain);
    await expect(control.restore(nic, kept)).rejects.toMatchObject({
      code: 'restore-incomplete',
      properties: ['link.hostConfig'],
      cause: { code: 'vf-missing' },
    });
  });

  it.each<[VfChange, string]>([
    [{ vlan: { id: 7, priority: 0 } }, 'vlan'],
    [{ trust: true, spoofCheck: false }, 'trust, spoofCheck'],
    [{ rate: { minMbps: 0, maxMbps: 100 } }, 'rate'],
  ])('rejects %j, which only a VF supports, before any change', async (vf, named) => {
    using node = new TestNode(withDriver('igb'));
    const control = hardwareOf(node);
    await expect(control.configure(nic, { vf, driver: 'vfio-pci' }, { vf: {} })).rejects.toMatchObject({
      code: 'no-vf',
      device: nic.pciAddress,
      message: `0000:1f:00.0 is a plain NIC and cannot have ${named}`,
      hint: expect.stringContaining('kind "vf"'),
    });
    expect((await control.snapshot(nic)).driver).toBe('igb');
  });

  it('does not set the MAC of a claim itself, and rejects another MAC in user space', async () => {
    using node = new TestNode(withDriver('vfio-pci'));
    const control = hardwareOf(node);
    const vf = { hardwareAddress: '02:00:00:00:00:01' };
    await control.configure(nic, { vf }, { vf: {} });
    await expect(control.configure(nic, { vf, driver: 'vfio-pci' }, { vf: {} })).rejects.toMatchObject({
      code: 'no-vf',
      message: expect.stringContaining('another MAC in user space'),
    });
  });

  it('binds to user space and back without a PF', async () => {
    using node = new TestNode(withDriver('vfio-pci'));
    const control = hardwareOf(node);
    node.takeAway('ensP');
    const before = await control.snapshot(nic);
    await control.configure(nic, { driver: 'vfio-pci' }, before);
    await control.restore(nic, before);
    expect(await control.groupMembers(nic)).toEqual([]);
  });
});
