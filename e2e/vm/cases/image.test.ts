import { describe, expect, onTestFailed } from 'vitest';
import { DriverPods } from '../../node/driver-pods.ts';
import { classConfig, vfConfig } from '../vf-config.ts';
import { linkOf, networkDataOf, vfAt } from '../vfs.ts';
import { readMetadata } from '../vm-node.ts';
import { it } from '../vm-test.ts';

// The image is large, and processors are emulated.
const timeout = 600_000;

describe('the image, as the chart runs it', () => {
  it('prepares real VFs, as interfaces and for DPDK, with two capabilities and its mounts', { timeout }, async ({
    node,
    vfs,
  }) => {
    await node.killDriver();
    await using pods = await DriverPods.create(node.bench, {});
    const driver = await pods.start();
    onTestFailed(() => console.error(driver.log().slice(-4_000)));
    const readiness = () => pods.checkReady().then(() => 'ready', String);
    await expect.poll(readiness, { timeout: 120_000, interval: 500 }).toBe('ready');
    const [kernelVf, dpdkVf] = [vfAt(vfs, 'pf0', 0), vfAt(vfs, 'pf1', 0)];
    const kernel = await node.startPod('image-kernel', kernelVf, [
      vfConfig({ interfaceName: 'net1', mtu: 1400, addresses: ['192.0.2.30/24'], vf: { vlan: 7 } }),
    ]);
    const link = linkOf(kernelVf, kernel.sandbox.netnsPath);
    expect(link).toMatchObject({ ifname: 'net1', mtu: 1400 });
    expect((await readMetadata(kernel)).devices[0]?.networkData).toEqual(networkDataOf(link!));
    const dpdk = await node.startPod('image-dpdk', dpdkVf, [
      classConfig({ driver: 'vfio-pci', macAddress: '02:4e:45:54:00:43' }),
      vfConfig({ interfaceName: 'dpdk0', addresses: ['192.0.2.43/24'] }),
    ]);
    const [device] = (await readMetadata(dpdk)).devices;
    expect(device).toMatchObject({
      attributes: {
        driver: { string: 'vfio-pci' },
        vfioDevice: { string: expect.stringMatching(/^\/dev\/vfio\/\d+$/) },
      },
      networkData: { hardwareAddress: '02:4e:45:54:00:43', ips: ['192.0.2.43/24'] },
    });
    const vfioDevice = device?.attributes?.vfioDevice as { string: string } | undefined;
    expect((await dpdk.container.exec('test', '-c', vfioDevice?.string ?? '')).exitCode).toBe(0);
    await node.bench.endAllPods();
  });
});
