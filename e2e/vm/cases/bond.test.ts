import { execFileSync } from 'node:child_process';
import { describe, expect } from 'vitest';
import { vfConfig } from '../vf-config.ts';
import { detailedLinks, linkOf, networkDataOf, vfAt } from '../vfs.ts';
import { type RunningPod, readMetadata } from '../vm-node.ts';
import { it } from '../vm-test.ts';

const slow = { timeout: 60_000 };
const bond = vfConfig({ bond: { name: 'bond0' }, addresses: ['192.0.2.20/24'], mtu: 1400 });

/** Which of the bond's members are active, as the metadata of their request says. */
async function activeIn(running: RunningPod): Promise<(boolean | undefined)[]> {
  return (await readMetadata(running)).devices.map(({ attributes }) => attributes?.bondActive?.bool);
}

describe('a bond of VFs of two cards', () => {
  it('uses the other card when one loses its link, also if the driver was killed meanwhile', async ({ node, vfs }) => {
    const members = [vfAt(vfs, 'pf0', 4), vfAt(vfs, 'pf1', 4)];
    const running = await node.startPod('bonded', members, [bond]);
    const { netnsPath } = running.sandbox;
    await expect.poll(() => activeIn(running), slow).toEqual([true, false]);
    const { generation, devices } = await readMetadata(running);
    const shown = detailedLinks(netnsPath).find(({ ifname }) => ifname === 'bond0');
    expect(shown).toMatchObject({ mtu: 1400, flags: expect.arrayContaining(['MASTER', 'UP', 'LOWER_UP']) });
    expect(devices.map(({ networkData }) => networkData)).toEqual([networkDataOf(shown!), networkDataOf(shown!)]);
    for (const [index, vf] of members.entries()) {
      const { ifname, address } = linkOf(vf, netnsPath)!;
      expect(devices[index]?.attributes).toMatchObject({ bondMember: { string: ifname }, mac: { string: address } });
    }
    const setPf = (state: 'up' | 'down') => execFileSync('ip', ['link', 'set', 'pf0', state]);
    try {
      setPf('down');
      await expect.poll(() => activeIn(running), slow).toEqual([false, true]);
      expect((await readMetadata(running)).generation).toBeGreaterThan(generation);
      await node.killDriver();
    } finally {
      setPf('up');
    }
    // A bond does not return to its first member by itself: that would be another interruption.
    await node.startDriver();
    expect(await activeIn(running)).toEqual([false, true]);
  });
});
