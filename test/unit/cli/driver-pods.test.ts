import { PassThrough } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { readDriverPods } from '../../../src/cli/cluster/driver-pods.ts';
import { limitOutput } from '../../../src/cli/cluster/pod-exec.ts';

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
  // A server that ignores the field selector.
  const listPods = async () => [
    podOf('netdra', 'netdra-abcde', '2026-11-01T00:00:00Z', 'DaemonSet'),
    podOf('netdra', 'debug', '2026-11-26T00:00:00Z', 'ReplicaSet'),
    podOf('tenant', 'evil', '2026-11-27T00:00:00Z', 'DaemonSet'),
  ];

  it('ignores pods of other namespaces and of other owners', async () => {
    const pods = await readDriverPods({ listPods } as never, options);
    expect([...pods]).toMatchObject([['worker-1', { namespace: 'netdra', name: 'netdra-abcde' }]]);
  });

  it('searches only the given namespace', async () => {
    const pods = await readDriverPods({ listPods } as never, { ...options, driverNamespace: 'tenant' });
    expect(pods.get('worker-1')).toMatchObject({ namespace: 'tenant' });
  });
});

describe('limitOutput', () => {
  it('cuts a stream at the limit, and passes a shorter one through', async () => {
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
});
