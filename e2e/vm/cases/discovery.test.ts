import { describe, expect } from 'vitest';
import { detailedLinks } from '../vfs.ts';
import { deviceName } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** Five seconds on real processors; emulated ones are slower, and may share their processors. */
const seenWithinMs = 30_000;

describe('discovery on two cards with seven VFs each', () => {
  it('offers every VF with the attributes that the kernel reports', async ({ node, vfs }) => {
    const expected = vfs.map((vf) => ({
      name: deviceName(vf),
      attributes: {
        'resource.kubernetes.io/pciBusID': { string: vf.pciAddress },
        'resource.kubernetes.io/pcieRoot': { string: vf.pf === 'pf0' ? 'pci0000:40' : 'pci0000:80' },
        'resource.kubernetes.io/numaNode': { int: vf.pf === 'pf0' ? 0 : 1 },
        pciAddress: { string: vf.pciAddress },
        pfPciAddress: { string: `0000:${vf.pciAddress.slice(5, 7)}:00.0` },
        pfName: { string: vf.pf },
        vfIndex: { int: vf.index },
        vendor: { string: '8086' },
        device: { string: '10ca' },
        driver: { string: 'igbvf' },
        iommuGroup: { string: expect.stringMatching(/^\d+$/) },
        mac: { string: vf.address },
        mtu: { int: vf.mtu },
        'k8s.cni.cncf.io/deviceID': { string: vf.pciAddress },
        kind: { string: 'vf' },
        linkType: { string: 'ethernet' },
        linkSpeed: { int: expect.any(Number) },
        eswitchMode: { string: 'legacy' },
        iommuGroupShared: { bool: false },
        rdma: { bool: false },
        rdmaDevice: { string: '' },
        rdmaNetnsMode: { string: '' },
        simulated: { bool: false },
      },
    }));
    // Another case may have changed something shortly before.
    await expect
      .poll(() => node.offeredDevices(), { timeout: seenWithinMs })
      .toMatchObject(expected.sort((a, b) => (a.name < b.name ? -1 : 1)));
  });

  it('sees each VF in its own IOMMU group', ({ node }) => {
    const groups = node.offeredDevices().map(({ attributes }) => JSON.stringify(attributes?.iommuGroup));
    expect(new Set(groups).size).toBe(14);
  });

  it('does not offer the NIC of the default route', ({ node }) => {
    const management = detailedLinks().find(({ ifname }) => ifname === 'mgmt0');
    expect(management).toMatchObject({ flags: expect.arrayContaining(['UP']) });
    const offered = JSON.stringify(node.offeredDevices());
    expect(offered).not.toContain(management?.address);
    expect(offered).not.toContain('mgmt0');
    expect(offered).not.toContain(management?.parentdev);
  });
});
