import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { deviceAttributes, maxAttributeBytes } from '../../../../src/node/inventory/attributes.ts';
import type { NicDevice, VfDevice } from '../../../../src/node/inventory/device.ts';

/** `ResourceSliceMaxAttributesAndCapacitiesPerDevice`. */
const maxAttributes = 32;

const vf: VfDevice = {
  kind: 'vf',
  name: '0000-3b-02-1',
  pciAddress: '0000:3b:02.1',
  pfAddress: '0000:3b:00.0',
  pfName: 'ens1f0',
  vfIndex: 1,
  vendor: '15b3',
  device: '101e',
  driver: 'mlx5_core',
  interfaceName: 'ens1f0v1',
  numaNode: 1,
  pcieRoot: 'pci0000:3a',
  iommuGroup: '41',
  iommuPeers: ['0000:3b:02.2'],
  hardwareAddress: '02:00:00:00:00:0a',
  mtuBytes: 9000,
  linkType: 'ethernet',
  linkSpeedMbps: 25_000,
  eswitchMode: 'switchdev',
  rdmaDevices: ['mlx5_3'],
  rdmaNetnsMode: 'exclusive',
  resourceName: 'example.com/rdma',
  simulated: false,
};
const bareVf: VfDevice = {
  kind: 'vf',
  name: '0000-3b-02-1',
  pciAddress: '0000:3b:02.1',
  pfAddress: '0000:3b:00.0',
  vfIndex: 0,
  vendor: '8086',
  device: '154c',
  iommuPeers: [],
  rdmaDevices: [],
  simulated: false,
};
const nic: NicDevice = {
  kind: 'nic',
  name: '0000-5e-00-1',
  pciAddress: '0000:5e:00.1',
  vendor: '8086',
  device: '1572',
  interfaceName: 'ens2f1',
  iommuPeers: [],
  rdmaDevices: [],
  simulated: false,
};
const isQualified = (name: string) => name.includes('/');

describe('deviceAttributes', () => {
  it("returns well-known attributes and netdra's own attributes in API form", () => {
    expect(deviceAttributes(vf)).toEqual({
      'resource.kubernetes.io/pciBusID': { string: '0000:3b:02.1' },
      'resource.kubernetes.io/pcieRoot': { string: 'pci0000:3a' },
      'resource.kubernetes.io/numaNode': { int: 1 },
      'k8s.cni.cncf.io/deviceID': { string: '0000:3b:02.1' },
      'k8s.cni.cncf.io/resourceName': { string: 'example.com/rdma' },
      kind: { string: 'vf' },
      pciAddress: { string: '0000:3b:02.1' },
      pfPciAddress: { string: '0000:3b:00.0' },
      pfName: { string: 'ens1f0' },
      vfIndex: { int: 1 },
      vendor: { string: '15b3' },
      device: { string: '101e' },
      driver: { string: 'mlx5_core' },
      iommuGroup: { string: '41' },
      iommuGroupShared: { bool: true },
      mac: { string: '02:00:00:00:00:0a' },
      mtu: { int: 9000 },
      linkType: { string: 'ethernet' },
      linkSpeed: { int: 25_000 },
      eswitchMode: { string: 'switchdev' },
      rdma: { bool: true },
      rdmaDevice: { string: 'mlx5_3' },
      rdmaNetnsMode: { string: 'exclusive' },
      simulated: { bool: false },
    });
  });

  it('returns every attribute of netdra even if the value is unknown, so that CEL selectors do not fail', () => {
    const known = Object.keys(deviceAttributes(vf)).filter((name) => !isQualified(name));
    for (const device of [bareVf, nic]) {
      const names = Object.keys(deviceAttributes(device)).filter((name) => !isQualified(name));
      expect(names.sort()).toEqual(known.sort());
    }
    expect(deviceAttributes(bareVf)).toMatchObject({
      pfName: { string: '' },
      driver: { string: '' },
      iommuGroup: { string: '' },
      iommuGroupShared: { bool: false },
      mac: { string: '' },
      mtu: { int: 0 },
      linkType: { string: '' },
      linkSpeed: { int: 0 },
      eswitchMode: { string: '' },
      rdma: { bool: false },
      rdmaDevice: { string: '' },
      rdmaNetnsMode: { string: '' },
    });
  });

  it('omits unknown well-known attributes, so that two unknown values never match', () => {
    const qualified = Object.keys(deviceAttributes(bareVf)).filter(isQualified);
    expect(qualified.sort()).toEqual(['k8s.cni.cncf.io/deviceID', 'resource.kubernetes.io/pciBusID']);
    expect(deviceAttributes({ ...bareVf, pcieRoot: '' })).not.toHaveProperty(['resource.kubernetes.io/pcieRoot']);
    expect(deviceAttributes({ ...bareVf, numaNode: 0 })).toHaveProperty(['resource.kubernetes.io/numaNode'], {
      int: 0,
    });
  });

  it('treats a plain NIC as its own PF', () => {
    expect(deviceAttributes(nic)).toMatchObject({
      kind: { string: 'nic' },
      pfPciAddress: { string: '0000:5e:00.1' },
      pfName: { string: 'ens2f1' },
      vfIndex: { int: -1 },
    });
  });

  it('keeps within the API limits for any kernel output', () =>
    fc.assert(
      fc.property(fc.string({ maxLength: 80 }), fc.array(fc.string({ maxLength: 30 })), (text, rdmaDevices) => {
        const attributes = deviceAttributes({ ...vf, driver: text, pfName: text, resourceName: text, rdmaDevices });
        // A device's metadata has some more: VLAN, vfio device, link state.
        expect(Object.keys(attributes).length).toBeLessThanOrEqual(maxAttributes - 8);
        for (const [name, value] of Object.entries(attributes)) {
          expect(name.split('/').at(-1)).toMatch(/^[A-Za-z_][A-Za-z0-9_]{0,31}$/);
          if ('string' in value) expect(Buffer.byteLength(value.string)).toBeLessThanOrEqual(maxAttributeBytes);
        }
      }),
    ));
});
