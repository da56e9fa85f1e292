import { CoreV1Api, KubeConfig, makeInformer, type V1Pod, Watch } from '@kubernetes/client-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ApiServer } from '../../doubles/api-server.ts';
import { buildNode, buildPod } from '../../doubles/objects.ts';

let server: ApiServer;
let config: KubeConfig;

beforeEach(async () => {
  server = await ApiServer.start();
  config = new KubeConfig();
  config.loadFromString(server.kubeconfig());
});
afterEach(() => server[Symbol.asyncDispose]());

interface Seen {
  type: string;
  name: string | undefined;
  code?: number;
  resourceVersion: string | undefined;
}

/** Opens a watch and collects what it tells. */
async function watch(path: string, query: Record<string, string> = {}) {
  const events: Seen[] = [];
  const ended = Promise.withResolvers<unknown>();
  const onEvent = (type: string, object: { code?: number; metadata?: { name?: string; resourceVersion?: string } }) => {
    const { name, resourceVersion } = object.metadata ?? {};
    events.push({ type, name, resourceVersion, ...(object.code === undefined ? {} : { code: object.code }) });
    arrived.resolve();
    arrived = Promise.withResolvers<void>();
  };
  let arrived = Promise.withResolvers<void>();
  const controller = await new Watch(config).watch(path, query, onEvent, ended.resolve);
  const short = () => events.map(({ type, name }) => `${type} ${name}`);
  return {
    events,
    ended: ended.promise,
    /** The first `count` events, as `ADDED name`. */
    async take(count: number): Promise<string[]> {
      while (events.length < count) await arrived.promise;
      return short();
    },
    [Symbol.dispose]: () => controller.abort(),
  };
}

describe('watch', () => {
  it('tells what was there and then what happens', async () => {
    server.create(buildNode('a'));
    using nodes = await watch('/api/v1/nodes');
    await nodes.take(1);
    server.create(buildNode('b'));
    server.edit('Node', 'a', (node) => {
      node.metadata.labels = { x: 'y' };
    });
    server.delete('Node', 'b');
    expect(await nodes.take(4)).toEqual(['ADDED a', 'ADDED b', 'MODIFIED a', 'DELETED b']);
    const versions = nodes.events.map(({ resourceVersion }) => Number(resourceVersion));
    expect(versions).toEqual([...versions].sort((left, right) => left - right));
  });

  it('goes on after the version it is given', async () => {
    const { metadata } = server.create(buildNode('a'));
    server.create(buildNode('b'));
    using nodes = await watch('/api/v1/nodes', { resourceVersion: metadata.resourceVersion });
    expect(await nodes.take(1)).toEqual(['ADDED b']);
  });

  it('sees objects come into its selection and leave it', async () => {
    server.create(buildPod('elsewhere', { nodeName: 'node-2' }));
    using pods = await watch('/api/v1/namespaces/default/pods', {
      fieldSelector: 'spec.nodeName=node-1',
      labelSelector: 'app=a',
    });
    server.create(buildPod('p', { namespace: 'other', labels: { app: 'a' } }));
    server.create(buildPod('p', { labels: { app: 'a' } }));
    for (const app of ['b', 'a']) {
      server.edit('Pod', 'p', (pod) => {
        pod.metadata.labels = { app };
      });
    }
    expect(await pods.take(3)).toEqual(['ADDED p', 'DELETED p', 'ADDED p']);
  });

  it('tells a client with a forgotten version to start over', async () => {
    const { metadata } = server.create(buildNode('a'));
    server.compact();
    using nodes = await watch('/api/v1/nodes', { resourceVersion: metadata.resourceVersion });
    await nodes.ended;
    expect(nodes.events).toMatchObject([{ type: 'ERROR', code: 410 }]);
  });

  it('sends bookmarks to those who want them', async () => {
    using wants = await watch('/api/v1/nodes', { allowWatchBookmarks: 'true' });
    using wantsNot = await watch('/api/v1/nodes');
    await server.until(() => server.watchCount === 2);
    server.sendBookmarks();
    server.create(buildNode('a'));
    expect(await wants.take(2)).toEqual(['BOOKMARK undefined', 'ADDED a']);
    expect(await wantsNot.take(1)).toEqual(['ADDED a']);
  });

  it('ends after timeoutSeconds, and when the test says so', async () => {
    using short = await watch('/api/v1/nodes', { timeoutSeconds: '0.05' });
    await short.ended;
    using long = await watch('/api/v1/nodes');
    expect(server.endWatches()).toBe(1);
    await long.ended;
    await server.until(() => server.watchCount === 0);
    expect(server.requests((request) => request.isWatch).every(({ endedMs }) => endedMs !== undefined)).toBe(true);
  });

  it('feeds an informer', async () => {
    const core = config.makeApiClient(CoreV1Api);
    server.create(buildPod('before'));
    const informer = makeInformer<V1Pod>(config, '/api/v1/pods', () => core.listPodForAllNamespaces());
    const seen: string[] = [];
    for (const verb of ['add', 'update', 'delete'] as const) {
      informer.on(verb, (pod) => void seen.push(`${verb} ${pod.metadata?.name}`));
    }
    await informer.start();
    await server.until(() => server.watchCount === 1);
    server.create(buildPod('after'));
    server.delete('Pod', 'before');
    await server.until(() => seen.length === 3 || undefined).catch(() => undefined);
    await informer.stop();
    expect(seen).toEqual(['add before', 'add after', 'delete before']);
  });
});
