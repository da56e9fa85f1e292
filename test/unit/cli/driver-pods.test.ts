import { PassThrough } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { readDriverPods } from '../../../src/cli/cluster/driver-pods.ts';
import { Cluster } from '../../../src/cli/cluster/open-cluster.ts';
import { limitOutput } from '../../../src/cli/cluster/pod-exec.ts';
import { ApiServer } from '../../doubles/api-server.ts';
import { kubeConfigOf } from '../../doubles/kube.ts';

const options = { driverName: 'sriov.netdra.dev', selector: 'app.kubernetes.io/name=netdra' };

function podOf(namespace: string, name: string, creationTimestamp: string, owner?: string) {
  const ownerReferences = owner === undefined ? undefined : [{ kind: owner }];
  return {
    metadata: { namespace, name, creationTimestamp, ownerReferences, labels: { 'app.kubernetes.io/name': 'netdra' } },
    spec: { nodeName: 'worker-1', containers: [{ name: 'driver', image: 'x:1' }] },
    status: { conditions: [{ type: 'Ready', status: 'True' }] },
  };
}

describe('readDriverPods', () => {
  const listPods = async (namespace: string) => [
    podOf(namespace, 'netdra-abcde', '2026-11-01T00:00:00Z', 'DaemonSet'),
    podOf(namespace, 'debug', '2026-11-26T00:00:00Z', 'ReplicaSet'),
  ];

  it('ignores pods that no DaemonSet owns', async () => {
    const pods = await readDriverPods({ listPods } as never, options);
    expect([...pods]).toMatchObject([['worker-1', { namespace: 'netdra', name: 'netdra-abcde' }]]);
  });

  it("asks the API server for pods of the driver's namespace only, as the viewer's Role allows", async () => {
    await using api = await ApiServer.start();
    using cluster = new Cluster(kubeConfigOf(api));
    await readDriverPods(cluster, options);
    expect(api.log.map(({ path }) => path)).toEqual(['/api/v1/namespaces/netdra/pods']);
  });

  it('searches only the given namespace', async () => {
    const pods = await readDriverPods({ listPods } as never, { ...options, driverNamespace: 'tenant' });
    expect(pods.get('worker-1')).toMatchObject({ namespace: 'tenant' });
  });
});

it('limitOutput cuts a stream at the limit, and passes a shorter stream through', async () => {
  const run = async (bytes: number) => {
    const stream = new PassThrough();
    const output = buffer(stream);
    let isExceeded = false;
    limitOutput(stream, () => (isExceeded = true), 100);
    for (let n = 0; n < bytes / 10; n++) stream.write(Buffer.alloc(10));
    stream.end();
    return { length: (await output.catch(() => undefined))?.length, isExceeded };
  };
  expect(await run(100)).toEqual({ length: 100, isExceeded: false });
  expect(await run(110)).toEqual({ length: undefined, isExceeded: true });
});
