import { ApiException, CoreV1Api, KubeConfig } from '@kubernetes/client-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ApiServer } from '../../doubles/api-server.ts';
import { buildNode } from '../../doubles/objects.ts';

let server: ApiServer;
let core: CoreV1Api;

beforeEach(async () => {
  server = await ApiServer.start();
  const config = new KubeConfig();
  config.loadFromString(server.kubeconfig());
  core = config.makeApiClient(CoreV1Api);
  for (const name of ['a', 'b']) server.create(buildNode(name));
});
afterEach(() => server[Symbol.asyncDispose]());

describe('faults and the request log', () => {
  it('logs requests with times that show which ran at once', async () => {
    using _slow = server.delay('GET /nodes/', 50);
    await Promise.all([core.readNode({ name: 'a' }), core.readNode({ name: 'b' })]);
    await server.until(() => server.log.every(({ endedMs }) => endedMs !== undefined));
    const [first, second] = server.requests('/nodes/');
    expect(first).toMatchObject({ method: 'GET', path: '/api/v1/nodes/a', status: 200, isWatch: false });
    expect(first?.userAgent).not.toBe('');
    expect(second?.startedMs).toBeLessThan(first?.endedMs ?? 0);
    expect((first?.endedMs ?? 0) - (first?.startedMs ?? 0)).toBeGreaterThanOrEqual(49);
  });

  it('logs queries and bodies', async () => {
    await core.createNode({ body: buildNode('c'), fieldManager: 'tester' });
    expect(server.requests(/^POST .*\/nodes$/)).toMatchObject([
      { query: { fieldManager: 'tester' }, body: { metadata: { name: 'c' } }, status: 201 },
    ]);
  });

  it('fails as often as asked, without doing anything', async () => {
    server.failNext('DELETE /nodes/a', 429, { times: 2, retryAfterSeconds: 1 });
    for (let i = 0; i < 2; i++) {
      const error: unknown = await core.deleteNode({ name: 'a' }).catch((reason) => reason);
      expect(error).toBeInstanceOf(ApiException);
      expect(error).toMatchObject({ code: 429, headers: { 'retry-after': '1' } });
    }
    expect(server.get('Node', 'a')).toBeDefined();
    await core.deleteNode({ name: 'a' });
    expect(server.get('Node', 'a')).toBeUndefined();
  });

  it('hangs until released', async () => {
    const hung = server.hang('/nodes/a');
    const answer = core.readNode({ name: 'a' });
    await server.until(() => server.requests('/nodes/a').length === 1);
    expect((await core.readNode({ name: 'b' })).metadata?.name).toBe('b');
    expect(server.requests('/nodes/a')[0]?.endedMs).toBeUndefined();
    hung[Symbol.dispose]();
    expect((await answer).metadata?.name).toBe('a');
  });

  it('cuts connections', async () => {
    server.disconnectNext('/nodes/a');
    await expect(core.readNode({ name: 'a' })).rejects.toThrow();
    expect((await core.readNode({ name: 'a' })).metadata?.name).toBe('a');
  });

  it('says what it waited for in vain', async () => {
    await expect(server.until(() => server.log.length > 0, 20)).rejects.toThrow(/not within 20 ms: .*log.length/);
  });

  it('closes twice without complaint, requests on the way included', async () => {
    using _hung = server.hang('/nodes/a');
    const answer = core.readNode({ name: 'a' }).catch(() => 'cut');
    await server.until(() => server.log.length === 1);
    await server[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
    expect(await answer).toBe('cut');
  });
});
