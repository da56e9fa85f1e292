import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import type { Bench } from '../../node/bench.ts';
import { detailedLinks, hostVfStates, offeredDevices, startVmBench, startVmDriver } from '../vm-node.ts';

describe('discovery on two cards with seven VFs each', () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await startVmBench(new RecordingLogger());
    await startVmDriver(bench);
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });

  it('offers every VF with what the kernel says of it', () => {
    const vfs = hostVfStates();
    expect(vfs).toHaveLength(14);
    const expected = vfs.map(({ pciAddress, name, address, mtu }) => {
      const [, card = '', index = ''] = /^pf(\d)v(\d)$/.exec(name) ?? [];
      return {
        name: pciAddress.replaceAll(/[:.]/g, '-'),
        attributes: {
          'resource.kubernetes.io/pciBusID': { string: pciAddress },
          'resource.kubernetes.io/pcieRoot': { string: card === '0' ? 'pci0000:40' : 'pci0000:80' },
          'resource.kubernetes.io/numaNode': { int: Number(card) },
          pciAddress: { string: pciAddress },
          pfPciAddress: { string: `0000:${pciAddress.slice(5, 7)}:00.0` },
          pfName: { string: `pf${card}` },
          vfIndex: { int: Number(index) },
          vendor: { string: '8086' },
          device: { string: '10ca' },
          driver: { string: 'igbvf' },
          iommuGroup: { string: expect.stringMatching(/^\d+$/) },
          mac: { string: address },
          mtu: { int: mtu },
          simulated: { bool: false },
        },
      };
    });
    expect(offeredDevices(bench)).toEqual(expected.sort((a, b) => (a.name < b.name ? -1 : 1)));
  });

  it('has each VF in an IOMMU group of its own', () => {
    const groups = offeredDevices(bench).map(({ attributes }) => JSON.stringify(attributes.iommuGroup));
    expect(new Set(groups).size).toBe(14);
  });

  it('does not offer what carries the default route', () => {
    const management = detailedLinks().find(({ ifname }) => ifname === 'mgmt0');
    expect(management).toMatchObject({ flags: expect.arrayContaining(['UP']) });
    const offered = JSON.stringify(offeredDevices(bench));
    expect(offered).not.toContain(management?.address);
    expect(offered).not.toContain('virtio');
  });
});
