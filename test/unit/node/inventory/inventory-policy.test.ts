import { expect, it } from 'vitest';
import { inventoryPolicySchema, rulesForNic, rulesForPf } from '../../../../src/node/inventory/inventory-policy.ts';

const head = { apiVersion: 'netdra.dev/v1alpha1', kind: 'InventoryPolicy' } as const;
const pf = { pciAddress: '0000:3b:00.0', vendor: '8086', device: '1572', driver: 'i40e', names: ['ens1f0'] };

it('inventoryPolicySchema accepts all fields at once', () => {
  const policy = {
    ...head,
    resourceName: 'example.com/sriov',
    pfs: [
      {
        select: {
          name: ['ens1f0', 'ens1f1'],
          pciAddress: ['0000:3b:00.0', '10000:e1:00.0'],
          vendor: '8086',
          device: ['1572', '1592'],
          driver: 'i40e',
          linkType: 'ethernet',
        },
        vfs: '0-3,6',
        vfDriver: ['iavf'],
        numVfs: 8,
        allowInUse: true,
        resourceName: 'example.com/dpdk',
      },
    ],
    nics: [{ select: { name: 'ens2f0' }, allowInUse: 'addresses', resourceName: 'nic' }],
  };
  expect(inventoryPolicySchema.parse(policy)).toEqual(policy);
});

it('rulesForPf never matches unknown values', () => {
  const { names: _, driver: __, ...bare } = pf;
  expect(rulesForPf({ pfs: [{ select: { name: 'ens1f0' } }, { select: { driver: 'i40e' } }] }, bare)).toEqual([]);
  expect(rulesForPf({ pfs: [{ select: { linkType: 'ethernet' } }] }, bare)).toEqual([]);
});

it('rulesForNic keeps the order of nics rules, and has no rules by default', () => {
  expect(rulesForNic({}, pf)).toEqual([]);
  const nics = [
    { select: { vendor: '15b3' } },
    { select: { vendor: '8086' }, resourceName: 'a' },
    { select: { device: '1572' } },
  ];
  expect(rulesForNic({ nics }, pf)).toEqual(nics.slice(1));
});
