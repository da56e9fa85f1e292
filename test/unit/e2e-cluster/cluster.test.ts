import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { Cluster } from '../../../e2e/cluster/cluster.ts';
import { testClaim, testPod } from '../../../e2e/cluster/objects.ts';
import { execInPod } from '../../../e2e/cluster/pod-exec.ts';
import type { ClusterTarget } from '../../../e2e/cluster/target.ts';
import { loadKubeConfig } from '../../../src/kube/kube-config.ts';
import { ApiServer } from '../../doubles/api-server.ts';
import type { PodStreams } from '../../doubles/api-server-pods.ts';
import { buildNode, testDriver, testNode } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { startTlsFront } from '../../doubles/tls-front.ts';

const token = 'secret';
const streams: PodStreams = {
  log: ({ pod, container }) => `log of ${pod}/${container}\n`,
  exec: async ({ pod, container }, command) => {
    if (pod !== 'p') throw new Error(`pods "${pod}" not found`);
    const [program = '', ...args] = command;
    if (program === 'hang') return await new Promise(() => undefined);
    const stdout =
      program === 'large' ? Buffer.alloc(Number(args[0]), 'x') : Buffer.from(`${container}: ${args.join('|')}`);
    return { stdout, stderr: Buffer.from(program === 'fail' ? 'no' : ''), exitCode: program === 'fail' ? 7 : 0 };
  },
};

let stack = new AsyncDisposableStack();
afterEach(async () => {
  await stack.disposeAsync();
  stack = new AsyncDisposableStack();
});

/** An API server double by TLS that asks for a token, with a node that has two devices, and the target for it. */
async function serve(more: Partial<ClusterTarget> = {}) {
  const api = stack.use(await ApiServer.start({ token }));
  const front = stack.use(await startTlsFront(api.url));
  const kubeconfig = join(stack.use(tempDir()).path, 'kubeconfig');
  const config = JSON.parse(api.kubeconfig());
  config.clusters[0].cluster = {
    server: `https://127.0.0.1:${front.port}`,
    'certificate-authority-data': Buffer.from(front.certificate).toString('base64'),
  };
  writeFileSync(kubeconfig, JSON.stringify(config));
  api.create(buildNode());
  api.servePods(streams);
  api.create({
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceSlice',
    metadata: { name: 's' },
    spec: {
      ...{ driver: testDriver, nodeName: testNode },
      pool: { name: testNode, generation: 1, resourceSliceCount: 1 },
      devices: [{ name: 'a' }, { name: 'b' }],
    },
  });
  // The controller of service accounts.
  const accounts = setInterval(() => {
    for (const { metadata } of api.objects('Namespace')) {
      const account = { kind: 'ServiceAccount', metadata: { name: 'default', namespace: metadata.name } };
      if (api.objects('ServiceAccount', metadata.name).length === 0) api.create(account);
    }
  }, 10);
  stack.defer(() => clearInterval(accounts));
  const target: ClusterTarget = {
    ...{ kubeconfig, driver: testDriver, driverNamespace: 'netdra', consumerImage: 'c:1', simulated: true },
    classes: { kernel: 'netdra-kernel', dpdk: 'netdra-dpdk' },
    paths: { kubeletPlugins: '/plugins', cdi: '/cdi' },
    ...{ admissionPolicies: true, keepFailed: false, oldestKubernetes: '1.36', ...more },
  };
  return { api, front, target };
}

describe('Cluster', () => {
  it('works in a namespace of its own on the node with devices, and removes the namespace', async () => {
    const { api, target } = await serve();
    const cluster = await Cluster.open(target);
    expect(api.objects('Namespace').map(({ metadata }) => metadata.name)).toEqual([cluster.namespace]);
    expect(cluster.node).toEqual({ name: testNode, hostname: testNode });
    expect((await cluster.devices()).map(({ name }) => name)).toEqual(['a', 'b']);
    await cluster[Symbol.asyncDispose]();
    expect(api.objects('Namespace')).toEqual([]);
  });

  it('creates, finds, lists and removes, and waits until a pod is gone', async () => {
    const { api, target } = await serve();
    await using cluster = await Cluster.open(target);
    await cluster.create(testClaim(cluster, 'c', [{ name: 'vf', config: { mtu: 1400 } }]));
    await cluster.create(testPod(cluster, 'p', { claims: [{ name: 'nic', resourceClaimName: 'c' }] }));
    expect(await cluster.find('ResourceClaim', 'none')).toBeUndefined();
    expect((await cluster.list<object>('Pod')).map(({ metadata }) => metadata.name)).toEqual(['p']);
    api.edit<{ spec: { nodeName?: string } }>(
      'Pod',
      'p',
      ({ spec }) => void Object.assign(spec, { nodeName: testNode }),
      cluster.namespace,
    );
    const removed = cluster.remove('Pod', 'p');
    await api.until(() => api.get<{ metadata: object }>('Pod', 'p', cluster.namespace)?.metadata !== undefined);
    await api.until(() => 'deletionTimestamp' in (api.get('Pod', 'p', cluster.namespace)?.metadata ?? {}));
    expect(await Promise.race([removed.then(() => 'gone'), new Promise((r) => setTimeout(r, 250, 'waits'))])).toBe(
      'waits',
    );
    api.delete('Pod', 'p', cluster.namespace);
    await removed;
    await cluster.remove('Pod', 'p');
  });

  it('tells a pod that runs from one that has ended too soon', async () => {
    const { api, target } = await serve();
    await using cluster = await Cluster.open(target);
    const setStatus = (status: object) =>
      void api.edit<{ status: object }>('Pod', 'p', (pod) => void Object.assign(pod, { status }), cluster.namespace);
    await cluster.create(testPod(cluster, 'p', {}));
    const running = cluster.waitUntilRunning('p');
    setStatus({ phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] });
    expect((await running).status?.phase).toBe('Running');
    setStatus({ phase: 'Failed' });
    await expect(cluster.waitUntilRunning('p')).rejects.toThrow(/it has ended: Failed/);
    expect((await cluster.waitUntilEnded('p')).status?.phase).toBe('Failed');
  });

  it.each([
    [
      'a server that is too old',
      { oldestKubernetes: '1.37' },
      /is Kubernetes v1\.36\.0-double; the tests need 1\.37 or newer/,
    ],
    ['a kubeconfig that is not there', { kubeconfig: '/nowhere/kubeconfig' }, /cannot load kubeconfig/],
  ])('refuses %s', async (_, more, message) => {
    const { target } = await serve(more);
    await expect(Cluster.open(target)).rejects.toThrow(message);
  });

  it('replaces the pod of the driver on its node and waits for the next one', async () => {
    const { api, target } = await serve();
    await using cluster = await Cluster.open(target);
    await expect(cluster.restartDriver()).rejects.toThrow(/no pod of the driver/);
    const create = (name: string, nodeName: string) =>
      api.create({
        ...{ apiVersion: 'v1', kind: 'Pod' },
        metadata: { name, namespace: 'netdra', labels: { 'app.kubernetes.io/name': 'netdra' } },
        spec: { nodeName, terminationGracePeriodSeconds: 0, containers: [{ name: 'driver', image: 'd' }] },
        status: { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] },
      });
    create('old', testNode);
    create('elsewhere', 'node-2');
    const restarted = cluster.restartDriver();
    await api.until(() => api.get('Pod', 'old', 'netdra') === undefined);
    create('new', testNode);
    await restarted;
    expect(api.objects('Pod', 'netdra').map(({ metadata }) => metadata.name)).toEqual(['elsewhere', 'new']);
  });
});

describe('commands in containers, over a websocket', () => {
  it('have output, errors and an exit code', async () => {
    const { target } = await serve();
    await using cluster = await Cluster.open(target);
    const result = await cluster.exec('p', 'main', 'sh', '-c', 'echo "a b" & c=d?');
    expect(result).toEqual({ stdout: 'main: -c|echo "a b" & c=d?', stderr: '', exitCode: 0 });
    expect(await cluster.exec('p', 'main', 'fail')).toEqual({ stdout: 'main: ', stderr: 'no', exitCode: 7 });
    await expect(cluster.read('p', 'main', 'fail')).rejects.toThrow(/fail in p\/main: exit code 7: no/);
  });

  it.each([0, 1, 124, 125, 126, 65_534, 65_535, 65_536, 300_000])('come whole with %i bytes', async (bytes) => {
    const { target } = await serve();
    await using cluster = await Cluster.open(target);
    expect(await cluster.read('p', 'main', 'large', String(bytes))).toBe('x'.repeat(bytes));
  });

  it('that cannot be run say why', async () => {
    const { front, target } = await serve();
    const cluster = await Cluster.open(target);
    await expect(cluster.exec('q', 'main', 'ls')).rejects.toThrow(/cannot run ls in .*\/q\/main: .*pods "q" not found/);
    const hanging = expect(cluster.exec('p', 'main', 'hang')).rejects.toThrow(/closed before the end/);
    await new Promise((resolve) => setTimeout(resolve, 100));
    await front[Symbol.asyncDispose]();
    await hanging;
    await cluster.leave();
  });

  it('are refused without the token', async () => {
    const { target } = await serve();
    const config = loadKubeConfig(target.kubeconfig);
    const name = { namespace: 'default', pod: 'p', container: 'main' };
    expect((await execInPod(config, name, ['ls'])).exitCode).toBe(0);
    Object.assign(config.getCurrentUser() ?? {}, { token: 'another' });
    await expect(execInPod(config, name, ['ls'])).rejects.toThrow(/cannot run ls in default\/p\/main: no connection/);
  });

  it('stand beside logs', async () => {
    const { target } = await serve();
    await using cluster = await Cluster.open(target);
    expect(await cluster.log('p', 'main')).toBe('log of p/main\n');
  });
});
