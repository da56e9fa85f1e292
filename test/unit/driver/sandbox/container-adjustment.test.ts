import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { containerAdjustment } from '../../../../src/driver/sandbox/container-adjustment.ts';
import { resolvePreparedClaim } from '../../../../src/framework/kubeletplugin/prepared-claim.ts';
import { ClaimMetadata, layouts } from '../../../../src/framework/metadata/index.ts';
import { buildPod, testDriver } from '../../../doubles/objects.ts';
import { storedClaims } from '../../../doubles/stored-claims.ts';
import { allocated, DriverBench, fromClass } from '../claims/driver-bench.ts';

const byResource = (name: string) =>
  `/var/run/kubernetes.io/dra-device-attributes/extended-resources/${name}/${testDriver}-metadata.json`;

/** A claim that the scheduler has made: `setup` shares the requests of `main` and `other`. */
async function stage(bench: DriverBench, config = [fromClass({})]) {
  const pod = buildPod('app');
  const requests = ['main', 'other'].map((name, index) => ({
    name,
    devices: [`dev-${2 * index}`, `dev-${2 * index + 1}`],
  }));
  const names = ['intel.com/nic', 'deviceclass.resource.kubernetes.io/vfs'];
  const claim = {
    ...allocated('extended', [], { pods: [pod], requests, config }),
    extendedResources: new Map(requests.map(({ name }) => [name, names])),
    sharers: new Map(requests.map(({ name }) => [name, ['setup']])),
  };
  const dataDir = join(bench.dir, 'data');
  const metadata = new ClaimMetadata({
    enabled: true,
    driver: testDriver,
    dataDir,
    cdiDir: bench.cdiDir,
    layouts: [layouts.v1],
  });
  const result = await bench.prepare(claim);
  const { record, contents } = resolvePreparedClaim(testDriver, claim, { devices: result?.devices ?? [] });
  await metadata.prepare(record, contents);
  const adjust = (name: string, uid = pod.metadata.uid) =>
    containerAdjustment({ store: bench.store, metadata }, { uid }, { name, env: [], createRuntimeHooks: [] });
  return { dataDir, adjust };
}

describe('containerAdjustment', () => {
  it('merges several requests for one resource into one variable and one file', async () => {
    using bench = new DriverBench();
    const { dataDir, adjust } = await stage(bench);
    const addresses = [0, 1, 2, 3].map((index) => `0000:00:00.${index}`);
    const { env = [], mounts, overrides } = adjust('setup') ?? {};
    // Those of the earlier instance, in a rolling update.
    expect(overrides).toBe(true);
    expect(env.map(({ name }) => name)).toEqual(['PCIDEVICE_INTEL_COM_NIC', 'PCIDEVICE_INTEL_COM_NIC_INFO']);
    expect(env[0]?.value).toBe(addresses.join());
    expect(Object.keys(JSON.parse(env[1]?.value ?? ''))).toEqual(addresses);
    const source = join(dataDir, 'dra-device-metadata/default_extended/setup+main/metadata.json');
    expect(mounts).toEqual(
      ['intel.com/nic', 'deviceclass.resource.kubernetes.io/vfs'].map((name) => {
        return { source, destination: byResource(name), type: 'bind', options: ['ro', 'bind'] };
      }),
    );
  });

  it('changes no other container of the pod, and no container of other pods', async () => {
    using bench = new DriverBench();
    const { adjust } = await stage(bench);
    expect([adjust('main'), adjust('other'), adjust('setup', 'another')]).toEqual([undefined, undefined, undefined]);
  });

  it('sets no variables if the class disables them', async () => {
    using bench = new DriverBench();
    const { adjust } = await stage(bench, [fromClass({ dialects: {} })]);
    expect(adjust('setup')).toMatchObject({ env: [], mounts: [{}, {}] });
  });

  it('throws store errors only for containers with a claim', () => {
    const store = storedClaims(() => {
      throw new Error('the store is damaged');
    });
    const ask = (isAnyUsed: boolean) => {
      const metadata = { isAnyUsedBy: () => isAnyUsed, mountsFor: () => [] };
      return containerAdjustment(
        { store, metadata },
        { uid: 'pod' },
        { name: 'main', env: [], createRuntimeHooks: [] },
      );
    };
    expect(ask(false)).toBeUndefined();
    expect(() => ask(true)).toThrow('the store is damaged');
  });
});
