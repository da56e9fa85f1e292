import { expect, it } from 'vitest';
import type { GetCluster } from '../describe-cluster.ts';
import type { InstalledDriver } from '../node/driver.ts';
import { createPodWithClaim } from '../objects.ts';

/** The flag of KEP-5304, as operators switch it: by the chart. */
export function describeMetadataFlag(get: GetCluster, getDriver: () => InstalledDriver): void {
  it('enableDeviceMetadata applies to pods that start after a change, and running pods keep their metadata files', async () => {
    const { cluster, view } = get();
    const addresses = ['192.0.2.1/24', '192.0.2.2/24', '192.0.2.3/24'];
    const startPod = async (name: string) => {
      const config = { interfaceName: 'net1', addresses: [addresses.shift()] };
      await createPodWithClaim(cluster, name, [{ name: 'vf', config }]);
      await cluster.waitUntilRunning(name);
      const container = view(name);
      // With metadata or not: the VF is there before the container starts.
      expect((await container.links()).map(({ ifname }) => ifname)).toContain('net1');
      return container;
    };
    const chart = getDriver();
    const early = await startPod('early');
    const before = await early.metadata('resourceclaims/early', 'vf');

    await using flag = {
      isOn: true,
      set(isOn: boolean) {
        chart.upgrade({ 'kubeletPlugin.enableDeviceMetadata': isOn });
        this.isOn = isOn;
      },
      async [Symbol.asyncDispose]() {
        if (!this.isOn) this.set(true);
      },
    };
    flag.set(false);
    const without = await startPod('without');
    expect(await without.metadataFiles()).toEqual([]);
    expect(await early.metadata('resourceclaims/early', 'vf')).toMatchObject({ devices: before.devices });

    flag.set(true);
    const late = await startPod('late');
    expect(await late.metadata('resourceclaims/late', 'vf')).toMatchObject({ generation: 1 });
    expect(await early.metadata('resourceclaims/early', 'vf')).toMatchObject({ devices: before.devices });
    expect(await without.metadataFiles()).toEqual([]);
  });
}
