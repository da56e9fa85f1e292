import { describe, expect, it } from 'vitest';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { toDeviceMetadata } from '../../../../src/driver/sandbox/pod-metadata.ts';
import { validateDevices } from '../../../../src/framework/metadata/index.ts';
import { deviceAttributes } from '../../../../src/node/inventory/attributes.ts';
import type { NetworkDevice } from '../../../../src/node/inventory/device.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';

const device = storedDevice({
  name: '0000-3b-02-1',
});
/** As the inventory has it, from when the VF was free. */
const attributes = {
  'resource.kubernetes.io/pciBusID': { string: '0000:3b:02.1' },
  driver: { string: 'mlx5_core' },
  iommuGroup: { string: '' },
  mac: { string: '02:00:00:00:00:01' },
  mtu: { int: 1500 },
  rdma: { bool: true },
  rdmaDevice: { string: 'mlx5_3' },
};
const state = { hardwareAddress: '02:00:00:00:00:02', ips: ['192.0.2.1/24'], tentative: false };
const tell = (access: StoredDevice['access'], more: object = {}) =>
  toDeviceMetadata({ ...device, ...(access === undefined ? {} : { access }) }, attributes, {
    ...state,
    ...more,
  });

describe('toDeviceMetadata', () => {
  it('describes a VF in user space for DPDK, without attributes of its kernel interface', () => {
    const vfio = { device: '/dev/vfio/42', iommuGroup: '42' };
    const metadata = tell(
      { driver: 'mlx5_vfio_pci', vfio, nodes: ['/dev/vfio/vfio', '/dev/vfio/42'] },
      { interfaceName: 'dpdk0', mtuBytes: 9000, vlan: 7 },
    );
    expect(metadata.attributes).toEqual({
      'resource.kubernetes.io/pciBusID': { string: '0000:3b:02.1' },
      driver: { string: 'mlx5_vfio_pci' },
      iommuGroup: { string: '42' },
      vfioDevice: { string: '/dev/vfio/42' },
      mac: { string: '02:00:00:00:00:02' },
      mtu: { int: 9000 },
      vlan: { int: 7 },
      rdma: { bool: false },
      rdmaDevice: { string: '' },
      rdmaNetnsMode: { string: '' },
    });
    expect(metadata.networkData).toEqual({
      interfaceName: 'dpdk0',
      ips: ['192.0.2.1/24'],
      hardwareAddress: '02:00:00:00:00:02',
    });
  });

  it('returns the current kernel driver of the VF, and the RDMA device that the claim requested', () => {
    const { attributes: shown } = tell({ driver: 'iavf', rdmaDevice: 'irdma1', nodes: ['/dev/infiniband/uverbs1'] });
    expect(shown).toMatchObject({
      driver: { string: 'iavf' },
      rdma: { bool: true },
      rdmaDevice: { string: 'irdma1' },
    });
    const renamed = tell({ rdmaDevice: 'irdma1', nodes: [] }, { rdmaDevice: 'rocep59s0' });
    expect(renamed.attributes).toMatchObject({ rdmaDevice: { string: 'rocep59s0' } });
    expect(shown).not.toHaveProperty('vfioDevice');
    expect(shown).not.toHaveProperty('vlan');
  });

  it('omits redundant attributes of a device with more attributes than the API allows', () => {
    const vf = {
      kind: 'vf',
      name: device.name,
      pciAddress: '0000:3b:02.1',
      pfAddress: '0000:3b:00.0',
      vfIndex: 1,
      vendor: '8086',
      device: '1889',
      pcieRoot: 'pci0000:3a',
      numaNode: 0,
      resourceName: 'intel.com/sriov',
      iommuPeers: [],
      rdmaDevices: [],
      simulated: false,
    } satisfies Partial<NetworkDevice>;
    const offered = deviceAttributes(vf as unknown as NetworkDevice);
    const config = { bond: { name: 'bond0' }, vf: { vlan: 100, minTxRate: 1_000, maxTxRate: 5_000 } };
    const own = { interfaceName: 'net1', hardwareAddress: undefined, isActive: true, mtuBytes: 1500, linkUp: true };
    const inBond = { ...state, vlan: 100, mtuBytes: 1500, linkUp: true, member: own, rdmaDevice: 'mlx5_3' };
    const tellAll = (more: object) =>
      toDeviceMetadata({ ...device, config } as StoredDevice, offered, { ...inBond, ...more }, 'aligned');
    const whole = tellAll({});
    const most = tellAll({ duplicates: ['192.0.2.1/24'] });
    expect(() => validateDevices({ namespace: 'a', name: 'c', uid: 'u' }, 'r', [whole, most])).not.toThrow();
    // A new attribute leaves out one more. There are only three that may be missing: docs/metadata.md.
    expect([missing(whole), missing(most)]).toEqual([['rdmaNetnsMode'], ['pciAddress', 'rdmaNetnsMode']]);
    function missing({ attributes: reported = {} }: typeof most): string[] {
      return Object.keys(offered)
        .filter((name) => !Object.hasOwn(reported, name))
        .sort();
    }
  });

  it('includes the rates of a VF, if it has any', () => {
    const config = { vf: { minTxRate: 0, maxTxRate: 400 } };
    const { attributes: shown } = toDeviceMetadata({ ...device, config }, attributes, state);
    expect(shown).toMatchObject({ maxTxRate: { int: 400 } });
    expect(shown).not.toHaveProperty('minTxRate');
  });

  it('uses attributes from the inventory if nothing newer is known', () => {
    expect(tell(undefined, { hardwareAddress: undefined }).attributes).toEqual(attributes);
    expect(tell({ nodes: [] }).attributes).toMatchObject({ driver: { string: 'mlx5_core' }, mtu: { int: 1500 } });
  });
});
