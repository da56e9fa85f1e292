import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { formatInventory, takeInventory } from '../../../src/cli/inventory.ts';
import { testDriver } from '../../doubles/objects.ts';
import { defaultRoute, TestNode } from '../node/sriov/test-node.ts';
import { plainTerminal } from './plain-terminal.ts';

let node: TestNode;
beforeEach(() => {
  node = new TestNode([
    {
      pciAddress: '0000:3b:00.0',
      driver: 'i40e',
      interfaces: [{ name: 'ensA', speed: '40000' }],
      totalVfs: 8,
      vfs: [
        { pciAddress: '0000:3b:02.0', driver: 'iavf', interfaces: [{ name: 'ensAv0', address: '02:00:00:00:00:03' }] },
        { pciAddress: '0000:3b:02.1', driver: 'iavf', interfaces: [{ name: 'ensAv1', address: '02:00:00:00:00:04' }] },
      ],
    },
    { pciAddress: '0000:5e:00.0', driver: 'ice', interfaces: [{ name: 'ensB' }], totalVfs: 8, vfs: [] },
  ]);
});
afterEach(() => node[Symbol.dispose]());

const device = (pciAddress: string) => ({ pciAddress, before: { driver: 'iavf', vf: {} } });
const take = (more: object = {}) =>
  takeInventory({
    driver: testDriver,
    connection: node.connection,
    sysfsRoot: node.root,
    claims: [],
    unrestored: [],
    ...more,
  });

describe('takeInventory', () => {
  it('lists devices as published, with the claims that hold them', async () => {
    const claims = [{ identity: { namespace: 'apps', name: 'fast-net', uid: 'u' }, devices: [device('0000:3b:02.1')] }];
    const view = await take({ claims });
    expect(formatInventory(plainTerminal, view)).toBe(
      [
        'DEVICE        KIND  PF    VF  DRIVER  INTERFACE  MAC                MTU   NUMA  IOMMU  CLAIM',
        '0000-3b-02-0  vf    ensA  0   iavf    ensAv0     02:00:00:00:00:03  1500  0     -      -',
        '0000-3b-02-1  vf    ensA  1   iavf    ensAv1     02:00:00:00:00:04  1500  0     -      apps/fast-net',
        '',
      ].join('\n'),
    );
    expect(view.devices[0]?.attributes).toMatchObject({ kind: { string: 'vf' }, linkSpeed: { int: 40000 } });
  });

  it('prints why devices are not offered', async () => {
    node.routes = [defaultRoute(node.indexOf('ensA'))];
    const view = await take();
    expect(view.excluded).toHaveLength(2);
    const text = formatInventory(plainTerminal, view);
    expect(text).toContain(
      'no device is offered: PF ensB (0000:5e:00.0) has 0 of 8 VFs: set numVfs in the inventory policy, or switch VFs on with the tools of the node; devices that are excluded, each with its reason: 2\n\nNOT OFFERED',
    );
    expect(text).toContain("0000:3b:02.0  0000:3b:00.0  ensA       the node's default route goes through its PF");
  });

  it('prints whether a VF is tainted, withdrawn or hung, and why it is not restored', async () => {
    const vlan = { device: device('0000:3b:02.0'), reason: 'the PF has not taken VLAN 0' };
    const write = { device: '0000:3b:02.1', path: '/sys/bus/pci/drivers/iavf/unbind', text: '0000:3b:02.1' };
    const state = { hungWrites: [write], keepsTaints: true };
    const view = await take({ unrestored: [vlan], state });
    const explanation =
      'restoring it after its last claim failed: the PF has not taken VLAN 0; the driver retries every minute';
    expect([view.devices.length, view.excluded]).toEqual([2, []]);
    const text = formatInventory(plainTerminal, view);
    expect(text).toContain(
      `0000-3b-02-1: taint ${testDriver}/hung, NoSchedule: the kernel does not return from a write to ${write.path}: end`,
    );
    expect(text).toContain(`0000-3b-02-0: taint ${testDriver}/unrestored, NoSchedule: ${explanation}\n`);
    // Where the API server stores no taints.
    const without = await take({ unrestored: [vlan], state: { ...state, keepsTaints: false } });
    expect(without.devices).toEqual([]);
    const pfAddress = '0000:3b:00.0';
    expect(without.excluded).toMatchObject([
      { pciAddress: '0000:3b:02.0', pfAddress, interfaceName: 'ensAv0', reason: 'unrestored', explanation },
      { pciAddress: '0000:3b:02.1', pfAddress, interfaceName: 'ensAv1', reason: 'hung' },
    ]);
    expect(formatInventory(plainTerminal, without)).toContain(`does not return from a write to ${write.path}`);
  });

  it('prints each problem of a PF once, and whether the VFs of the PF are tainted', async () => {
    const lost = { pciAddress: '0000:3b:00.0', kind: 'PF' as const, interfaceName: 'ensA', holdMs: 1, sinceMs: 7_999 };
    const conditions = [{ ...lost, condition: 'no-carrier' as const }];
    const state = { hungWrites: [], keepsTaints: true, conditions };
    const view = await take({ state });
    const taint = { key: `${testDriver}/no-carrier`, effect: 'NoSchedule', timeAdded: '1970-01-01T00:00:07Z' };
    expect(view.devices.map(({ taints }) => taints)).toEqual([[taint], [taint]]);
    const text = 'PF ensA (0000:3b:00.0) has no carrier: check its cable and transceiver, and the port of the switch\n';
    expect(formatInventory(plainTerminal, view)).toContain(
      `0000-3b-02-0, 0000-3b-02-1: taint ${testDriver}/no-carrier, NoSchedule: ${text}`,
    );
    const policy = { taints: { noCarrier: 'None' } };
    expect(formatInventory(plainTerminal, await take({ state: { ...state, policy } }))).toContain(
      `0000-3b-02-0, 0000-3b-02-1: no taint: ${text}`,
    );
  });

  it('prints the policy in force, and reports that the policy file is rejected', async () => {
    const policy = { pfs: [{ select: {}, vfs: '1' }] };
    const policyFault = 'inventory policy /etc/netdra/p.yaml is invalid: pfs: expected array';
    const view = await take({ state: { policy, policyFault, hungWrites: [], keepsTaints: true } });
    expect(view.devices.map(({ name }) => name)).toEqual(['0000-3b-02-1']);
    expect(view.problems).toEqual([`${policyFault}; the last valid policy stays in force`]);
  });

  it('prints which rules match nothing, and why a node without SR-IOV offers nothing', async () => {
    using bare = new TestNode([{ pciAddress: '0000:1f:00.0', driver: 'igb', interfaces: [{ name: 'ensP' }] }]);
    const policyPath = join(node.root, 'policy.yaml');
    writeFileSync(
      policyPath,
      'apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicy\nnics: [{ select: { name: ens9 } }]\n',
    );
    const view = await take({ connection: bare.connection, sysfsRoot: bare.root, policyPath });
    const text = formatInventory(plainTerminal, view);
    expect(text).toMatch(
      /^no device is offered: no network card has SR-IOV: switch it on in the firmware .*netdra doctor/,
    );
    expect(text).toContain(
      'warning: nics[0] of the inventory policy selects nothing: {"name":"ens9"}; this node has ensP (0000:1f:00.0)',
    );
  });

  it('applies the policy without enabling the VFs that it asks for', async () => {
    const policyPath = join(node.root, 'policy.yaml');
    const rules = 'pfs: [{ select: { name: ensB }, numVfs: 4 }, { select: {}, vfs: "1" }]';
    writeFileSync(policyPath, `apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicy\n${rules}\n`);
    const view = await take({ policyPath });
    expect(view.devices.map(({ name }) => name)).toEqual(['0000-3b-02-1']);
    expect(view.excluded).toMatchObject([{ pciAddress: '0000:3b:02.0', reason: 'not-selected' }]);
    expect(view.switchedOnAtStart).toEqual([{ pciAddress: '0000:5e:00.0', numVfs: 4 }]);
    expect(readFileSync(join(node.root, 'bus/pci/devices/0000:5e:00.0/sriov_numvfs'), 'utf8').trim()).toBe('0');
    expect(formatInventory(plainTerminal, view)).toContain('0000:5e:00.0: the driver will enable 4 VFs');
  });

  it('prints what it can read if some files are unreadable', async () => {
    writeFileSync(join(node.root, 'bus/pci/devices/0000:3b:02.0/vendor'), 'nonsense\n');
    const view = await take();
    expect(view.devices.map(({ name }) => name)).toEqual(['0000-3b-02-1']);
    expect(view.problems).toEqual([expect.stringContaining('0000:3b:02.0')]);
    expect(formatInventory(plainTerminal, view)).toContain('problem: ');
  });

  it('fails if the policy is invalid or the simulated VFs are missing', async () => {
    const policyPath = join(node.root, 'policy.yaml');
    writeFileSync(policyPath, 'kind: Pod');
    await expect(take({ policyPath })).rejects.toThrow(/inventory policy .* is invalid/);
    // Also without a driver that has made any.
    await expect(take({ policyPath, simulatedIn: node.root })).rejects.toThrow(/inventory policy .* is invalid/);
    await expect(take({ simulatedIn: node.root })).rejects.toThrow(/there are no simulated VFs in/);
  });
});
