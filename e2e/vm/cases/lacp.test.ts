import { execFileSync } from 'node:child_process';
import { expect } from 'vitest';
import { type pfNames, vfAt } from '../vfs.ts';
import { deviceName } from '../vm-node.ts';
import { it } from '../vm-test.ts';

const slow = { timeout: 120_000 };

/** Makes a PF the only port of a bond. The cards are on one wire: with the second bond each is the partner of the other. */
function joinBond(pf: (typeof pfNames)[number]): void {
  run(`ip link add lacp-${pf} type bond mode 802.3ad miimon 100 lacp_rate fast
    ip link set ${pf} down
    ip link set ${pf} master lacp-${pf}
    ip link set lacp-${pf} up`);
}

function run(script: string): void {
  execFileSync('bash', ['-euc', script]);
}

it('VFs of a bonded PF are tainted while the PF has no LACP partner', {
  timeout: 600_000,
}, async ({ node, vfs }) => {
  const ofPf0 = vfs.filter(({ pf }) => pf === 'pf0').map(deviceName);
  const tainted = () => {
    const lost = node
      .offeredDevices()
      .filter(({ taints }) => taints?.some(({ key }) => /\/lacp-partner-lost$/.test(key)));
    return lost.map(({ name }) => name);
  };
  const policies = () => node.messages().filter((each) => each === 'inventory policy in force').length;
  const before = policies();
  node.setPolicy({ pfs: [{ select: {}, allowInUse: true }], health: { lacpRelay: true } });
  await expect.poll(policies, slow).toBe(before + 1);
  await node.startPod('relayed', vfAt(vfs, 'pf0', 4), []);
  try {
    joinBond('pf0');
    await expect.poll(tainted, slow).toEqual(ofPf0);
    const refused = 'cannot make links of VFs follow the LACP partner: the card cannot set the link state of a VF';
    await expect.poll(() => node.messages(), slow).toContain(refused);
    joinBond('pf1');
    await expect.poll(tainted, slow).toEqual([]);
  } finally {
    for (const pf of ['pf0', 'pf1']) run(`ip link del lacp-${pf} || true; ip link set ${pf} up`);
    node.setPolicy({});
  }
});
