import { join } from 'node:path';
import type { ResourceV1ResourceClaim, V1Pod } from '@kubernetes/client-node';
import { describe, expect, it, vi } from 'vitest';
import { formatClusterClaims, readClaims } from '../../../src/cli/cluster/claims.ts';
import { openCluster } from '../../../src/cli/cluster/open-cluster.ts';
import { nodeOfClaim, parseClaim, runOnNode } from '../../../src/cli/cluster/remote.ts';
import { formatStatus } from '../../../src/cli/cluster/status.ts';
import { readNodeView } from '../../../src/driver/nodeview/index.ts';
import type { AllocatedDeviceStatus } from '../../../src/framework/kube/index.ts';
import type { Device } from '../../../src/framework/resourceslice/index.ts';
import { explain } from '../../../src/lib/errors.ts';
import type { ApiServer } from '../../doubles/api-server.ts';
import { buildClaim, buildPod, testDriver } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { largestSources } from '../driver/nodeview/sources.ts';
import { installOn, options, startCluster } from './cluster-with-pods.ts';
import { plainTerminal } from './plain-terminal.ts';

const vf = (index: number, more: Partial<Device> = {}): Device => ({
  name: `vf-${index}`,
  attributes: { pfName: { string: 'ens1f0' } },
  ...more,
});

function publish(api: ApiServer, nodeName: string, devices: Device[], pool = { generation: 1, resourceSliceCount: 1 }) {
  const metadata = { name: `${nodeName}-${pool.generation}-${api.objects('ResourceSlice').length}` };
  const spec = { driver: testDriver, nodeName, pool: { name: nodeName, ...pool }, devices };
  api.create({ apiVersion: 'resource.k8s.io/v1', kind: 'ResourceSlice', metadata, spec } as never);
}

/** A claim with devices of a node, in use by a pod of its name unless `isFree`. */
function allocate(api: ApiServer, name: string, devices: string[], { isFree = false, adminAccess = false } = {}): void {
  const pods = isFree ? [] : [buildPod(`${name}-0`)];
  const choices = devices.map((device) => ({ device, ...(adminAccess && { adminAccess }) }));
  api.create(buildClaim(name, { requests: [{ name: 'vf', devices: choices }], pods, namespace: 'apps' }));
}

describe('readStatus', () => {
  it('counts the offered and the allocated devices of each node', async () => {
    await using bench = await startCluster();
    const { api } = bench;
    installOn(api, 'node-1');
    installOn(api, 'node-1', { phase: 'Pending' }, 'other.example.com');
    publish(api, 'node-1', [vf(0), vf(1)], { generation: 2, resourceSliceCount: 2 });
    publish(api, 'node-1', [vf(2), vf(3)], { generation: 2, resourceSliceCount: 2 });
    // Slices of an older generation are on their way out.
    publish(api, 'node-1', [vf(0), vf(4)], { generation: 1, resourceSliceCount: 1 });
    installOn(api, 'node-2');
    allocate(api, 'a', ['vf-0', 'vf-1']);
    allocate(api, 'b', ['vf-2'], { isFree: true });
    // Takes nothing from others; and several claims may share a device.
    allocate(api, 'watch', ['vf-3'], { adminAccess: true });
    allocate(api, 'shared', ['vf-0']);
    api.create(buildClaim('other', { driver: 'gpu.example.com', requests: [{ name: 'gpu', devices: ['gpu-0'] }] }));
    const nothing = { offered: 0, allocated: 0, inUse: 0, tainted: 0, problems: [] };
    const pod = { namespace: 'netdra', container: 'driver', version: '0.2.0', ready: true };
    expect(await bench.status()).toEqual({
      driver: testDriver,
      policies: [],
      nodes: [
        {
          node: 'node-1',
          pod: { ...pod, name: 'netdra-node-1-sriov.netdra.dev' },
          ...nothing,
          offered: 4,
          allocated: 3,
          inUse: 2,
        },
        { node: 'node-2', pod: { ...pod, name: 'netdra-node-2-sriov.netdra.dev' }, ...nothing },
      ],
    });
    expect(await bench.statusText()).toBe(
      [
        'NODE    VERSION  READY  OFFERED  ALLOCATED  IN USE  TAINTED',
        'node-1  0.2.0    yes    4        3          2       0',
        'node-2  0.2.0    yes    0        0          0       0',
        '',
        '2 nodes, the driver ready on 2: 4 devices, 3 allocated, 2 in use, 0 tainted\n',
      ].join('\n'),
    );
  });

  it('counts all nodes even if it lists only nodes with problems', async () => {
    await using bench = await startCluster();
    const { api } = bench;
    installOn(api, 'node-1');
    publish(api, 'node-1', [vf(0)]);
    const listed = async () => {
      const status = await bench.status();
      const withProblems = status.nodes.filter(({ problems }) => problems.length > 0);
      return formatStatus(plainTerminal, status, withProblems);
    };
    expect(await listed()).toBe('1 node, the driver ready on 1: 1 device, 0 allocated, 0 in use, 0 tainted\n');
    publish(api, 'node-2', [vf(1)]);
    const lines = (await listed()).split('\n');
    expect(lines.filter((line) => line.startsWith('node-'))).toEqual([
      expect.stringMatching(/^node-2 .* no pod /),
      expect.stringMatching(/^node-2: /),
    ]);
    expect(lines.at(-2)).toBe('2 nodes, the driver ready on 1: 2 devices, 0 allocated, 0 in use, 0 tainted');
  });

  it('lists for each node which problems need attention, and why', async () => {
    await using bench = await startCluster({ draVersions: ['v1beta2'] });
    const { api } = bench;
    const taints = [{ key: `${testDriver}/no-carrier`, effect: 'NoSchedule' as const }];
    const noticed = [{ key: 'example.com/seen', effect: 'None' as const }];
    publish(api, 'node-1', [vf(0, { taints }), vf(1, { taints }), vf(2, { taints: noticed, attributes: {} })]);
    installOn(api, 'node-1', {
      phase: 'Running',
      conditions: [{ type: 'Ready', status: 'False', message: 'containers with unready status: [driver]' }],
      containerStatuses: [{ state: { waiting: { reason: 'CrashLoopBackOff', message: 'back-off 5m' } } }],
    } as V1Pod['status']);
    allocate(api, 'lost', ['vf-9']);
    publish(api, 'node-2', [vf(0)], { generation: 1, resourceSliceCount: 2 });
    expect((await bench.statusText()).split('\n')).toEqual([
      'NODE    VERSION  READY   OFFERED  ALLOCATED  IN USE  TAINTED',
      'node-1  0.2.0    no      3        1          1       2',
      'node-2  -        no pod  1        0          0       0',
      '',
      'node-1: pod netdra/netdra-node-1-sriov.netdra.dev of the driver is not ready: CrashLoopBackOff: back-off 5m',
      'node-1: 2 devices of PF ens1f0 tainted: sriov.netdra.dev/no-carrier, NoSchedule',
      'node-1: device vf-9 of claim apps/lost is no longer offered',
      'node-2: no pod of the driver is on the node',
      'node-2: 1 of 2 ResourceSlices of the node are published: no claim gets a device of this node',
      '',
      '2 nodes, the driver ready on 0: 4 devices, 1 allocated, 1 in use, 2 tainted',
      '',
    ]);
  });

  it('counts devices tainted by a DeviceTaintRule, and names the rule', async () => {
    await using bench = await startCluster();
    const { api } = bench;
    installOn(api, 'node-1');
    publish(api, 'node-1', [vf(0), vf(1), vf(2)]);
    const addRule = (name: string, deviceSelector: object | undefined, effect: string) => {
      const spec = { ...(deviceSelector && { deviceSelector }), taint: { key: 'example.com/work', effect } };
      api.create({ apiVersion: 'resource.k8s.io/v1', kind: 'DeviceTaintRule', metadata: { name }, spec } as never);
    };
    addRule('one', { driver: testDriver, pool: 'node-1', device: 'vf-1' }, 'NoExecute');
    addRule('other-pool', { pool: 'node-2', device: 'vf-1' }, 'NoExecute');
    addRule('no-device', undefined, 'NoSchedule');
    addRule('trial', {}, 'None');
    expect((await bench.statusText()).split('\n').slice(1, -2)).toEqual([
      'node-1  0.2.0    yes    3        0          0       1',
      '',
      'node-1: 1 device of PF ens1f0 tainted by DeviceTaintRule one: example.com/work, NoExecute',
      '',
    ]);
    addRule('all', {}, 'NoSchedule');
    expect((await bench.status()).nodes).toMatchObject([{ tainted: 3 }]);
  });

  it('names the node of a driver pod that is pending, and the reason', async () => {
    await using bench = await startCluster();
    installOn(bench.api, 'node-1', {
      phase: 'Pending',
      conditions: [
        { type: 'PodScheduled', status: 'False', message: '0/1 nodes are available: 1 Insufficient memory' },
      ],
    });
    const term = { matchFields: [{ key: 'metadata.name', operator: 'In', values: ['node-1'] }] };
    bench.api.edit<V1Pod>(
      'Pod',
      `netdra-node-1-${testDriver}`,
      ({ spec }) => {
        delete spec!.nodeName;
        const requiredDuringSchedulingIgnoredDuringExecution = { nodeSelectorTerms: [term] };
        spec!.affinity = { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution } };
      },
      'netdra',
    );
    expect((await bench.status()).nodes).toMatchObject([
      { node: 'node-1', problems: [expect.stringMatching(/not ready: 0\/1 nodes .* Insufficient memory$/)] },
    ]);
  });

  it('prints withheld devices with reasons, and a rejected policy, from NodeNetworkDevices', async () => {
    await using bench = await startCluster();
    const { api } = bench;
    const taints = [{ key: `${testDriver}/unrestored`, effect: 'NoSchedule' as const }];
    const { withheld: _, ...view } = readNodeView(largestSources());
    const policy = { ...view.conditions[0]!, message: 'pfs[0].select: unknown field' };
    for (const node of ['node-1', 'node-2']) {
      installOn(api, node);
      publish(api, node, [vf(0, { taints })]);
      const withheld = [
        {
          pf: 'ens1f1',
          reason: 'not-selected',
          message: 'no rule of the policy selects it',
          devices: ['vf-1', 'vf-2'],
        },
        { pf: 'ens1f0', reason: 'unrestored', message: 'EBUSY', devices: ['vf-0'] },
      ];
      const driver = { ...view.driver, name: node === 'node-1' ? testDriver : 'other.example.com' };
      const inForce = { ...view.policy, name: 'racks', generation: 3 };
      const status = { ...view, driver, withheld, policy: inForce, conditions: [policy] };
      api.create({
        apiVersion: 'netdra.dev/v1alpha1',
        kind: 'NodeNetworkDevices',
        metadata: { name: node },
        status,
      } as never);
    }
    const policies = { apiVersion: 'netdra.dev/v1alpha1', kind: 'NetworkDevicePolicy' };
    api.create({ ...policies, metadata: { name: 'racks', generation: 4 } } as never);
    api.create({ ...policies, metadata: { name: 'unused', generation: 1 } } as never);
    const tainted = '1 device of PF ens1f0 tainted: sriov.netdra.dev/unrestored, NoSchedule';
    expect((await bench.statusText()).split('\n').slice(4, -3)).toEqual([
      `node-1: ${tainted}`,
      'node-1: PolicyAccepted is False: Refused: pfs[0].select: unknown field',
      'node-1: 2 devices of PF ens1f1 withheld: no rule of the policy selects it',
      `node-2: ${tainted}`,
      'policy racks, generation 4: in force on 0 nodes, an earlier generation on 1',
      'policy unused, generation 1: in force on 0 nodes',
    ]);
    api.failNext('/nodenetworkdevices', 403);
    expect((await bench.status()).nodes.map(({ problems }) => problems)).toEqual([[tainted], [tainted]]);
  });

  it('reports a cluster without nodes of the driver', async () => {
    await using bench = await startCluster();
    expect(await bench.statusText()).toMatch(/^no node has a pod or a device of sriov\.netdra\.dev: check/);
  });

  it('names a missing permission, and the rule that grants it', async () => {
    await using bench = await startCluster();
    const message = 'resourceslices.resource.k8s.io is forbidden: User "joe" cannot list resource "resourceslices"';
    bench.api.failNext('/resourceslices', 403, { message });
    expect(await bench.status().catch(explain)).toMatch(
      /^may not list resourceslices: GET \S+: the API server answered 403: .* User "joe" cannot list .* \(an administrator can bind the ClusterRole netdra-viewer /,
    );
  });
});

describe('listing many objects', () => {
  const names = Array.from({ length: 1_001 }, (_, index) => `c-${index}`);

  it('reads page by page, or everything at once if the resource version of the pages keeps expiring', async () => {
    await using bench = await startCluster();
    const { api, cluster } = bench;
    for (const name of names) allocate(api, name, ['vf-0']);
    const read = async () => (await readClaims(cluster, options)).map(({ name }) => name).sort();
    expect(await read()).toEqual([...names].sort());
    const logged = () => api.requests('/resourceclaims').map(({ query }) => query);
    expect(logged()).toEqual([{ limit: '500' }, { limit: '500', continue: '500' }, { limit: '500', continue: '1000' }]);
    api.failNext(({ query }) => query.continue === '1000', 410, { reason: 'Expired' });
    expect(await read()).toEqual([...names].sort());
    expect(logged().at(-1)).toEqual({});
  });
});

describe('readClaims', () => {
  const statusOf = (device: string, more: Partial<AllocatedDeviceStatus>): AllocatedDeviceStatus => ({
    driver: testDriver,
    pool: 'node-1',
    device,
    ...more,
  });
  const condition = (type: string, status: 'True' | 'False', reason: string, message = '') => ({
    type,
    status,
    reason,
    message,
    lastTransitionTime: '2026-01-01T00:00:00Z',
  });

  it("returns the pods and devices of claims with the driver's conditions, and the table shows them", async () => {
    await using bench = await startCluster();
    const { api, cluster } = bench;
    allocate(api, 'a', ['vf-0', 'vf-1']);
    allocate(api, 'b', ['vf-2'], { isFree: true });
    allocate(api, 'c', ['vf-3']);
    api.create(buildClaim('new', { requests: [{ name: 'vf', devices: [] }], allocated: false, namespace: 'apps' }));
    const devices = [
      statusOf('vf-0', {
        conditions: [condition('Ready', 'True', 'Attached'), condition('NumaAligned', 'False', 'OtherNode', 'CPU 3')],
        networkData: { interfaceName: 'net1', ips: ['192.0.2.7/24'] },
      }),
      statusOf('vf-1', { conditions: [condition('Ready', 'False', 'NotAttached', 'no route')] }),
      { ...statusOf('vf-1', { conditions: [condition('Ready', 'True', 'Fine')] }), driver: 'other.example.com' },
    ];
    const ofOther = { request: 'vf', driver: 'other.example.com', pool: 'node-1', device: 'vf-1' };
    const report = ({ status }: ResourceV1ResourceClaim) => {
      status?.allocation?.devices?.results?.push(ofOther);
      Object.assign(status ?? {}, { devices });
    };
    api.edit<ResourceV1ResourceClaim>('ResourceClaim', 'a', report, 'apps');
    const claims = await readClaims(cluster, { ...options, namespace: 'apps' });
    expect(claims[0]?.devices[0]).toEqual({
      request: 'vf',
      node: 'node-1',
      device: 'vf-0',
      ready: true,
      reason: 'Attached',
      message: '',
      interfaceName: 'net1',
      ips: ['192.0.2.7/24'],
      warnings: ['NumaAligned is False: OtherNode: CPU 3'],
    });
    expect(formatClusterClaims(plainTerminal, claims).split('\n')).toEqual([
      'CLAIM   POD  NODE    DEVICE  STATE         INTERFACE  ADDRESSES',
      'apps/a  a-0  node-1  vf-0    ready         net1       192.0.2.7/24',
      'apps/a  a-0  node-1  vf-1    not ready     -          -',
      'apps/b  -    node-1  vf-2    not in use    -          -',
      'apps/c  c-0  node-1  vf-3    not reported  -          -',
      '',
      'apps/a: vf-0: NumaAligned is False: OtherNode: CPU 3',
      'apps/a: vf-1: not ready: NotAttached: no route',
      '',
    ]);
    expect(await readClaims(cluster, { ...options, namespace: 'other' })).toEqual([]);
  });
});

describe('commands in the pod of the driver', () => {
  it('accept a claim as a name or as namespace/name, the form that tables print', () => {
    expect(parseClaim('fast-net', 'default')).toEqual({ namespace: 'default', name: 'fast-net' });
    expect(parseClaim('apps/fast-net', 'default')).toEqual({ namespace: 'apps', name: 'fast-net' });
    for (const bad of ['apps/', '/fast-net', 'a/b/c', '', '../x', 'A'])
      expect(() => parseClaim(bad, 'default')).toThrow(/is neither the name of a claim nor namespace\/name/);
  });

  it("run on the given node, or on the node of the claim's devices", async () => {
    await using bench = await startCluster();
    const { api, cluster } = bench;
    for (const node of ['node-1', 'node-2']) installOn(api, node);
    allocate(api, 'a', ['vf-0']);
    api.create(buildClaim('new', { requests: [{ name: 'vf', devices: [] }], allocated: false }));
    cluster.answer = { exitCode: 1, stdout: 'problem', stderr: '' };
    const node = await nodeOfClaim(cluster, testDriver, { namespace: 'apps', name: 'a' });
    expect(await runOnNode(cluster, options, node, ['metadata', 'apps/a'])).toBe(cluster.answer);
    expect(cluster.commands).toEqual(['netdra-node-1-sriov.netdra.dev driver: netdra metadata apps/a']);
    expect(await runOnNode(cluster, options, 'node-9', ['doctor']).catch(explain)).toBe(
      `no pod of ${testDriver} is on node node-9 (nodes with such a pod: node-1, node-2)`,
    );
    expect(await nodeOfClaim(cluster, testDriver, { namespace: 'default', name: 'new' }).catch(explain)).toMatch(
      /^claim default\/new has no device of sriov\.netdra\.dev \(kubectl describe/,
    );
  });
});

it('openCluster uses the default kubeconfig and its namespace, and names a missing kubeconfig or context', async () => {
  await using bench = await startCluster();
  using dir = tempDir();
  vi.stubEnv('HOME', dir.path);
  vi.stubEnv('KUBERNETES_SERVICE_HOST', undefined);
  try {
    // An empty KUBECONFIG counts as unset, as in kubectl.
    for (const none of [{}, { kubeconfig: '' }]) {
      expect(await openCluster(none).catch(explain)).toBe(
        `no API server is known: there is no ${dir.path}/.kube/config (give --kubeconfig, or KUBECONFIG in the environment)`,
      );
    }
    const kubeconfig = join(dir.path, 'config');
    await bench.api.writeKubeconfig(kubeconfig);
    using cluster = await openCluster({ kubeconfig });
    expect([cluster.namespace, await cluster.listPods('default', {})]).toEqual(['default', []]);
    expect(await openCluster({ kubeconfig, context: 'lab' }).catch(explain)).toBe(
      `kubeconfig ${kubeconfig} cannot be used: it has no context lab; it has double`,
    );
  } finally {
    vi.unstubAllEnvs();
  }
});
