import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import { TestNode } from '../sriov/test-node.ts';

export const pfA = '0000:3b:00.0';
export const pfB = '0000:5e:00.0';
export const a0 = '0000:3b:02.0';
export const a1 = '0000:3b:02.1';
export const b0 = '0000:5e:02.0';
export const plain = '0000:1f:00.0';

export let node: TestNode;

export const file = (pciAddress: string, name: string) => join(node.root, 'bus/pci/devices', pciAddress, name);

export const addresses = ({ devices }: { devices: { pciAddress: string }[] }) =>
  devices.map(({ pciAddress }) => pciAddress);

/** Makes a node with two cards and a plain NIC for each test of a file. */
export function useTwoCards(): void {
  beforeEach(() => {
    const vf = (pciAddress: string, name: string, address: string) => ({
      pciAddress,
      driver: 'iavf',
      interfaces: [{ name, address }],
    });
    node = new TestNode([
      {
        pciAddress: pfA,
        driver: 'i40e',
        interfaces: [{ name: 'ensA', speed: '40000' }],
        totalVfs: 8,
        vfs: [vf(a0, 'ensAv0', '02:00:00:00:00:03'), vf(a1, 'ensAv1', '02:00:00:00:00:04')],
      },
      {
        pciAddress: pfB,
        device: '0x1592',
        driver: 'ice',
        interfaces: [{ name: 'ensB', speed: '25000' }],
        totalVfs: 8,
        vfs: [vf(b0, 'ensBv0', '02:00:00:00:00:06')],
      },
      { pciAddress: plain, device: '0x1533', driver: 'igb', interfaces: [{ name: 'ensP', speed: '1000' }] },
    ]);
  });
  afterEach(() => node[Symbol.dispose]());
}
