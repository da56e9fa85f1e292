import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import { expect, it } from 'vitest';
import type { Cluster } from '../cluster.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { startNumaDrivers } from '../node/numa-drivers.ts';
import type { RealNode } from '../node/real-node.ts';
import { testClaim, testPod } from '../objects.ts';

const slow = { timeout: 60_000, interval: 500 };
const numaNode = 'resource.kubernetes.io/numaNode';
const pcieRoot = 'resource.kubernetes.io/pcieRoot';
const accelerators = 'accelerator.example.com';

/** What the feature gates of `npm run e2e:cluster -- --alpha` bring, with `kubeletPlugin.listAttributes`. */
export function describeAlphaGates(get: GetCluster, getNode: () => RealNode): void {
  /** A pod with a VF and an accelerator that agree on an attribute. */
  async function create(name: string, matchAttribute: string, selectors: string[] = []): Promise<void> {
    const { cluster } = get();
    const requests = [{ name: 'vf' }, { name: 'accelerator', deviceClassName: accelerators, selectors }];
    const claim = testClaim(cluster, name, requests);
    claim.spec.devices!.constraints = [{ matchAttribute }];
    await cluster.create(claim);
    await cluster.create(testPod(cluster, name, { claims: [{ name: 'all', resourceClaimName: name }] }));
  }

  async function attributesOfVf(cluster: Cluster, claim: string) {
    await cluster.waitUntilRunning(claim);
    const { status } = (await cluster.find<ResourceV1ResourceClaim>('ResourceClaim', claim)) ?? {};
    const vf = status?.allocation?.devices?.results?.find(({ request }) => request === 'vf');
    return (await cluster.devices()).find(({ name }) => name === vf?.device)?.attributes ?? {};
  }

  it('NUMA nodes published as lists let the scheduler match VFs with devices that share a node', async () => {
    const { cluster } = get();
    const nodes = async () => {
      const all = (await cluster.devices()).map(({ attributes = {} }) => JSON.stringify(attributes[numaNode]));
      return [...new Set(all)].sort();
    };
    await expect.poll(nodes, slow).toEqual(['{"ints":[0]}', '{"ints":[1]}']);

    const offered = (await cluster.devices()).map(({ attributes = {} }) => attributes);
    // VFs of the other PF come first in the slices.
    const root = offered.find(({ [numaNode]: node }) => node?.ints?.includes(0))?.[pcieRoot]?.string ?? '';
    const lists = [
      { [numaNode]: { ints: [7, 0] } },
      { [numaNode]: { ints: [7, 8] }, [pcieRoot]: { strings: ['pci0000:7f', root] } },
    ];
    await using _drivers = await startNumaDrivers(getNode(), lists);

    await create('none', numaNode, [`device.attributes["resource.kubernetes.io"].numaNode.includes(8)`]);
    const refusals = async () =>
      (await cluster.events()).filter(
        ({ reason, regarding }) => reason === 'FailedScheduling' && regarding.name === 'none',
      );
    await expect
      .poll(refusals, slow)
      .toEqual([expect.objectContaining({ note: expect.stringContaining('cannot allocate all claims') })]);
    await cluster.removeWithClaims(['none']);

    await create('near', numaNode);
    expect(await attributesOfVf(cluster, 'near')).toMatchObject({ [numaNode]: { ints: [0] } });
    await create('below-root', pcieRoot);
    expect(await attributesOfVf(cluster, 'below-root')).toMatchObject({ [pcieRoot]: { string: root } });
    // Files have single values.
    const [device] = (await get().view('near').metadata('resourceclaims/near', 'vf')).devices;
    expect(device?.attributes?.[numaNode]).toEqual({ int: 0 });
    await cluster.removeWithClaims(['near', 'below-root']);
  });
}
