import { describe, expect, it } from 'vitest';
import { dialectsSchema } from '../../../../src/driver/api/dialects-config.ts';
import {
  type DialectDevice,
  deviceInfoFile,
  formatEnv,
  sriovNetworkPodEnv,
  viewInDialects,
} from '../../../../src/driver/dialects/index.ts';

const dpdk: DialectDevice = {
  name: '0000-3b-02-1',
  pciAddress: '0000:3b:02.1',
  pfAddress: '0000:3b:00.0',
  access: { vfio: { device: '/dev/vfio/42' }, nodes: ['/dev/vfio/vfio', '/dev/vfio/42'] },
};
const rdma: DialectDevice = {
  name: '0000-3b-02-2',
  pciAddress: '0000:3b:02.2',
  access: {
    rdmaDevice: 'mlx5_3',
    nodes: ['/dev/infiniband/uverbs3', '/dev/infiniband/umad3', '/dev/infiniband/issm3', '/dev/infiniband/rdma_cm'],
  },
};
const kernel: DialectDevice = { name: '0000-3b-02-3', pciAddress: '0000:3b:02.3' };
const vhost: DialectDevice = { ...kernel, access: { nodes: ['/dev/vhost-net', '/dev/net/tun'] } };
const resourceName = 'intel.com/sriov_dpdk';

it('no variable or file is written without a configured dialect', () => {
  expect(viewInDialects({}, [dpdk])).toEqual({ env: {}, deviceInfoFiles: [] });
});

describe("the device plugin's dialect", () => {
  const env = (devices: DialectDevice[], info?: boolean, name = resourceName) =>
    viewInDialects({ devicePlugin: { resourceName: name, ...(info === undefined ? {} : { info }) } }, devices).env;

  it.each([
    ['intel.com/sriov_dpdk', 'PCIDEVICE_INTEL_COM_SRIOV_DPDK'],
    ['openshift.io/NicA', 'PCIDEVICE_OPENSHIFT_IO_NICA'],
    ['my-org.example.com/x', 'PCIDEVICE_MY-ORG_EXAMPLE_COM_X'],
  ])('sets for %s the variable %s', (name, variable) => {
    expect(env([dpdk, kernel], false, name)).toEqual({ [variable]: '0000:3b:02.1,0000:3b:02.3' });
  });

  it('describes each device in the variable PCIDEVICE_…_INFO', () => {
    const info = JSON.parse(env([dpdk, rdma, vhost]).PCIDEVICE_INTEL_COM_SRIOV_DPDK_INFO ?? '');
    expect(info).toEqual({
      '0000:3b:02.1': {
        generic: { deviceID: '0000:3b:02.1' },
        vfio: { mount: '/dev/vfio/vfio', 'dev-mount': '/dev/vfio/42' },
      },
      '0000:3b:02.2': {
        generic: { deviceID: '0000:3b:02.2' },
        rdma: {
          uverbs: '/dev/infiniband/uverbs3',
          umad: '/dev/infiniband/umad3',
          issm: '/dev/infiniband/issm3',
          rdma_cm: '/dev/infiniband/rdma_cm',
          rdma_dev: 'mlx5_3',
        },
      },
      '0000:3b:02.3': {
        generic: { deviceID: '0000:3b:02.3' },
        vhost: { 'net-mount': '/dev/vhost-net', 'tun-mount': '/dev/net/tun' },
      },
    });
  });
});

it('the dialect of dra-driver-sriov sets variables for each device, and a variable for the pod', () => {
  expect(viewInDialects({ sriovNetwork: { networkAttachmentDefinition: 'fast' } }, [dpdk, rdma]).env).toEqual({
    SRIOVNETWORK_VF_DEVICE_0000_3b_02_1: '0000:3b:02.1',
    SRIOVNETWORK_0000_3b_02_1_VFIO_DEVICE: '/dev/vfio/42',
    SRIOVNETWORK_VF_DEVICE_0000_3b_02_2: '0000:3b:02.2',
    SRIOVNETWORK_0000_3b_02_2_RDMA_DEVICE: 'mlx5_3',
    SRIOVNETWORK_0000_3b_02_2_RDMA_UVERB: '/dev/infiniband/uverbs3',
    SRIOVNETWORK_0000_3b_02_2_RDMA_UMAD: '/dev/infiniband/umad3',
    SRIOVNETWORK_0000_3b_02_2_RDMA_ISSM: '/dev/infiniband/issm3',
    SRIOVNETWORK_0000_3b_02_2_RDMA_CM: '/dev/infiniband/rdma_cm',
    SRIOVNETWORK_NET_ATTACH_DEF_NAME: 'fast',
  });
  expect(sriovNetworkPodEnv([dpdk, rdma])).toEqual({ SRIOVNETWORK_PCI_ADDRESSES: '0000:3b:02.1,0000:3b:02.2' });
});

it('the device-info dialect writes a file per device, named by resource and address as readers expect', () => {
  const { deviceInfoFiles } = viewInDialects({ deviceInfo: { resourceName } }, [dpdk, rdma]);
  expect(deviceInfoFiles.map(({ name, text }) => [name, JSON.parse(text)])).toEqual([
    [
      'intel.com-sriov_dpdk-0000:3b:02.1-device.json',
      { type: 'pci', version: '1.1.0', pci: { 'pci-address': '0000:3b:02.1', 'pf-pci-address': '0000:3b:00.0' } },
    ],
    [
      'intel.com-sriov_dpdk-0000:3b:02.2-device.json',
      { type: 'pci', version: '1.1.0', pci: { 'pci-address': '0000:3b:02.2', 'rdma-device': 'mlx5_3' } },
    ],
  ]);
  expect(JSON.parse(deviceInfoFile(resourceName, vhost).text).pci).toEqual({
    'pci-address': '0000:3b:02.3',
    'vhost-net': '/dev/vhost-net',
  });
});

it.each([
  [{ devicePlugin: { resourceName } }, true],
  [{ devicePlugin: { resourceName, info: false }, deviceInfo: { resourceName }, sriovNetwork: {} }, true],
  [{}, true],
  [{ devicePlugin: {} }, false],
  [{ devicePlugin: { resourceName: 'sriov_dpdk' } }, false],
  [{ devicePlugin: { resourceName: 'intel.com/a/b' } }, false],
  [{ deviceInfo: { resourceName: '../x/y' } }, false],
  [{ deviceInfo: { resourceName: 'intel.com/..' } }, false],
  [{ unknown: true }, false],
])('the dialect configuration %j: valid is %s', (config, valid) => {
  expect(dialectsSchema.safeParse(config).success).toBe(valid);
});

it('dialects are converted to CDI container edits', () => {
  expect(formatEnv({ A: '1', B: 'x=y' })).toEqual(['A=1', 'B=x=y']);
});
