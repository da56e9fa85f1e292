import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { KubeConfig } from '@kubernetes/client-node';
import { describe, expect } from 'vitest';
import { KubeClient, type KubeError, type WatchEvent } from '../../../../src/framework/kube/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { kubeConfigOf } from '../../../doubles/kube.ts';
import { poll, startKubeBench } from '../../../doubles/kube-bench.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { buildNode } from '../../../doubles/objects.ts';

interface Node {
  metadata: { name: string; resourceVersion: string; labels?: Record<string, string> };
}

const nodes = '/api/v1/nodes';

const it = itWith(() => startKubeBench({ token: 'secret' }));

/** A config for any server on this machine. */
function configFor(url: string): KubeConfig {
  const config = new KubeConfig();
  config.loadFromClusterAndUser({ name: 'c', server: url, skipTLSVerify: true }, { name: 'u' });
  return config;
}

async function listen(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function failureOf(task: Promise<unknown>): Promise<KubeError> {
  return await task.then(
    () => expect.unreachable('it did not fail'),
    (error) => error,
  );
}

describe('KubeClient', () => {
  it('sends and accepts plain JSON, with a User-Agent', async ({ own: bench }) => {
    const made = await bench.client.request<Node>({ method: 'POST', path: nodes, body: buildNode('n') });
    expect(made.metadata).toMatchObject({ name: 'n', resourceVersion: expect.any(String) });
    expect(await bench.client.request({ method: 'GET', path: `${nodes}/n` })).toEqual(bench.api.get('Node', 'n'));
    expect(bench.api.log[0]).toMatchObject({
      authorization: 'Bearer secret',
      userAgent: 'netdra/test',
      contentType: 'application/json',
    });
  });

  it.each([
    [401, 'api-unauthorized', false],
    [403, 'api-forbidden', false],
    [409, 'api-conflict', true],
    [410, 'api-expired', true],
    [422, 'api-invalid', false],
    [429, 'api-throttled', true],
    [500, 'api-failed', true],
    [503, 'api-failed', true],
  ])('maps status %i to an error code', async (status, code, retriable) => {
    await using bench = await startKubeBench({ token: 'secret' });
    bench.api.failNext(nodes, status, { message: 'so it is', reason: 'Because' });
    const error = await failureOf(bench.client.request({ method: 'GET', path: `${nodes}/n` }));
    expect(error).toMatchObject({ code, httpStatus: status, retriable, reason: 'Because' });
    expect(error.message).toBe(`GET ${nodes}/n: the API server answered ${status}: so it is`);
  });

  it('distinguishes a terminating namespace from a missing permission', async () => {
    const status = {
      kind: 'Status',
      apiVersion: 'v1',
      status: 'Failure',
      reason: 'Forbidden',
      code: 403,
      message:
        'events.events.k8s.io "e" is forbidden: unable to create new content in namespace n because it is being terminated',
      details: { name: 'e', causes: [{ reason: 'NamespaceTerminating', message: 'namespace n is being terminated' }] },
    };
    const server = createServer((_, response) => response.writeHead(403).end(JSON.stringify(status)));
    const url = await listen(server);
    using client = new KubeClient(configFor(url), { clock: systemClock, userAgent: 'netdra' });
    const error = await failureOf(client.request({ method: 'POST', path: '/', body: {} }));
    expect(error).toMatchObject({ code: 'api-forbidden', reason: 'NamespaceTerminating' });
    expect(error.hint).toBeUndefined();
    server.close();
    server.closeAllConnections();
  });

  it('distinguishes a missing object from a missing API', async ({ own: bench }) => {
    const get = (path: string) => failureOf(bench.client.request({ method: 'GET', path }));
    expect(await get(`${nodes}/absent`)).toMatchObject({ code: 'api-not-found' });
    expect(await get('/apis/example.com/v1/things')).toMatchObject({ code: 'api-unserved' });
    expect(await get('/api/v1/things/a')).toMatchObject({ code: 'api-unserved' });
  });

  it('retries at most five times when a busy server requests a retry', async ({ own: bench }) => {
    bench.api.create(buildNode('n'));
    const clock = new ManualClock();
    using client = new KubeClient(kubeConfigOf(bench.api), { clock, userAgent: 'netdra' });
    using busy = bench.api.failNext(nodes, 429, { times: Infinity, retryAfterSeconds: 7 });
    const refused = failureOf(client.request({ method: 'GET', path: `${nodes}/n` }));
    for (let attempt = 1; attempt < 5; attempt++) {
      await poll(() => clock.sleeping()).toEqual([7_000]);
      expect(bench.api.log).toHaveLength(attempt);
      clock.advance(7_000);
    }
    expect(await refused).toMatchObject({ code: 'api-throttled', retryAfterMs: 7_000 });
    expect(bench.api.log).toHaveLength(5);
    const served = client.request<Node>({ method: 'GET', path: `${nodes}/n` });
    await poll(() => clock.sleeping()).toEqual([7_000]);
    busy[Symbol.dispose]();
    clock.advance(7_000);
    expect((await served).metadata.name).toBe('n');
  });

  it('waits at most a minute, whatever Retry-After says', async ({ own: bench }) => {
    const clock = new ManualClock();
    using client = new KubeClient(kubeConfigOf(bench.api), { clock, userAgent: 'netdra' });
    bench.api.create(buildNode('n'));
    bench.api.failNext(nodes, 503, { retryAfterSeconds: 86_400 });
    const served = client.request<Node>({ method: 'GET', path: `${nodes}/n` });
    await poll(() => clock.sleeping()).toEqual([60_000]);
    clock.advance(60_000);
    expect((await served).metadata.name).toBe('n');
  });

  it('times out if the server does not answer', async ({ own: bench }) => {
    using _hanging = bench.api.hang(nodes);
    const error = await failureOf(bench.client.request({ method: 'GET', path: `${nodes}/n`, timeoutMs: 20 }));
    expect(error).toMatchObject({ code: 'api-timeout', retriable: true });
    expect(error.message).toBe(`GET ${nodes}/n: no answer from the API server within 20 ms`);
  });

  it("stops with the reason of the caller's abort, also while it waits for a busy server", async ({ own: bench }) => {
    const reason = new Error('the pod is gone');
    const abort = new AbortController();
    using hanging = bench.api.hang(nodes);
    const first = failureOf(bench.client.request({ method: 'GET', path: nodes, signal: abort.signal }));
    await poll(() => bench.api.log.length).toBe(1);
    abort.abort(reason);
    expect(await first).toBe(reason);
    hanging[Symbol.dispose]();

    const later = new AbortController();
    bench.api.failNext(nodes, 429, { retryAfterSeconds: 60 });
    const second = failureOf(bench.client.request({ method: 'GET', path: nodes, signal: later.signal }));
    await poll(() => bench.api.log[1]?.endedMs !== undefined).toBe(true);
    later.abort(reason);
    expect(await second).toBe(reason);
  });

  it('reports that no API server listens at the address', async () => {
    const server = createServer();
    const url = await listen(server);
    await new Promise((resolve) => server.close(resolve));
    using client = new KubeClient(configFor(url), { clock: systemClock, userAgent: 'netdra' });
    const error = await failureOf(client.request({ method: 'GET', path: nodes }));
    expect(error).toMatchObject({ code: 'api-unreachable', retriable: true });
    expect(explain(error)).toMatch(/no answer from the API server: connect ECONNREFUSED/);
  });

  it('fails on a truncated response, and reports a server that is not an API server', async () => {
    const server = createServer((request, response) => {
      if (request.url === '/cut')
        response.writeHead(200, { 'content-length': '100' }).write('{"a"', () => response.destroy());
      else response.end('<html><title>Sign in</title></html>\n');
    });
    const url = await listen(server);
    using client = new KubeClient(configFor(url), { clock: systemClock, userAgent: 'netdra' });
    const get = (path: string) => failureOf(client.request({ method: 'GET', path }));
    expect(await get('/cut')).toMatchObject({ code: 'api-unreachable' });
    const watched = client.watch({ path: '/html' })[Symbol.asyncIterator]().next();
    for (const error of await Promise.all([get('/html'), failureOf(watched)])) {
      expect(error).toMatchObject({ code: 'api-failed', retriable: true });
      expect(explain(error)).toMatch(/the answer is not JSON.*<html>.*another server, such as a proxy, answers/);
    }
    server.close();
    server.closeAllConnections();
  });

  it('reuses one connection for sequential requests, and opens several for concurrent requests', async () => {
    const sockets = new Set<unknown>();
    const server = createServer((request, response) => {
      sockets.add(request.socket);
      setTimeout(() => response.end('{}'), 5);
    });
    const url = await listen(server);
    using client = new KubeClient(configFor(url), { clock: systemClock, userAgent: 'netdra' });
    for (let n = 0; n < 10; n++) await client.request({ method: 'GET', path: '/' });
    expect(sockets.size).toBe(1);
    await Promise.all(Array.from({ length: 16 }, () => client.request({ method: 'GET', path: '/' })));
    expect(sockets.size).toBe(16);
    client[Symbol.dispose]();
    await new Promise((resolve) => server.close(resolve));
  });

  it('resends a request on a new connection if the server just closed the idle connection', async () => {
    let served = 0;
    const server = createServer((request, response) => {
      // The first answer leaves the connection open; the next request on it finds it cut.
      if (served++ === 1) request.socket.resetAndDestroy();
      else response.end(JSON.stringify({ served }));
    });
    const url = await listen(server);
    using client = new KubeClient(configFor(url), { clock: systemClock, userAgent: 'netdra' });
    await client.request({ method: 'GET', path: '/' });
    expect(await client.request({ method: 'PUT', path: '/', body: {} })).toEqual({ served: 3 });
    server.close();
    server.closeAllConnections();
  });

  it('resends a request on a new connection if its idle connections lead to a replaced server', async () => {
    let isOther = false;
    const known = new Set<Socket>();
    const waiting: (() => void)[] = [];
    const server = createServer(({ socket }, response) => {
      if (isOther && known.has(socket)) socket.resetAndDestroy();
      else waiting.push(() => response.end('{}'));
      known.add(socket);
      // Answered together, so that each has a connection of its own.
      if (isOther || waiting.length === 4) for (const answer of waiting.splice(0)) answer();
    });
    const url = await listen(server);
    using client = new KubeClient(configFor(url), { clock: systemClock, userAgent: 'netdra' });
    const get = () => client.request({ method: 'GET', path: '/' });
    await Promise.all([get(), get(), get(), get()]);
    isOther = true;
    expect(await get()).toEqual({});
    server.close();
    server.closeAllConnections();
  });
});

describe('KubeClient.watch', () => {
  it('yields events from the given version on, until it is aborted', async ({ own: bench }) => {
    const list = await bench.client.request<{ metadata: { resourceVersion: string } }>({ method: 'GET', path: nodes });
    bench.api.create(buildNode('a'));
    const abort = new AbortController();
    const seen: string[] = [];
    const watching = (async () => {
      const query = { resourceVersion: list.metadata.resourceVersion };
      for await (const event of bench.client.watch<Node>({ path: nodes, query, signal: abort.signal })) {
        seen.push(`${event.type} ${event.object.metadata.name ?? ''}`);
      }
    })();
    watching.catch(() => undefined);
    await poll(() => seen).toEqual(['ADDED a']);
    bench.api.create(buildNode('b'));
    bench.api.delete('Node', 'a');
    await poll(() => seen).toEqual(['ADDED a', 'ADDED b', 'DELETED a']);
    const reason = new Error('enough');
    abort.abort(reason);
    await expect(watching).rejects.toBe(reason);
    await poll(() => bench.api.watchCount).toBe(0);
  });

  it('ends without an error when the server ends the watch', async ({ own: bench }) => {
    const events: WatchEvent<Node>[] = [];
    const watching = (async () => {
      for await (const event of bench.client.watch<Node>({ path: nodes })) events.push(event);
    })();
    await poll(() => bench.api.watchCount).toBe(1);
    bench.api.create(buildNode('a'));
    await poll(() => events).toHaveLength(1);
    bench.api.endWatches();
    await watching;
  });

  it('ends, and closes the connection, if the server is silent for longer than a watch can last', async ({
    own: bench,
  }) => {
    const clock = new ManualClock();
    using client = new KubeClient(kubeConfigOf(bench.api), { clock, userAgent: 'netdra' });
    const events: WatchEvent<Node>[] = [];
    const watching = (async () => {
      for await (const event of client.watch<Node>({ path: nodes })) events.push(event);
    })();
    bench.api.create(buildNode('a'));
    await poll(() => events).toHaveLength(1);
    clock.advance(3_600_000);
    bench.api.create(buildNode('b'));
    await poll(() => events).toHaveLength(2);
    clock.advance(600_000);
    await watching;
    await poll(() => bench.api.watchCount).toBe(0);
    expect(clock.sleeping()).toEqual([]);
  });

  it("fails with the server's error on an expired version or a missing permission", async ({ own: bench }) => {
    bench.api.create(buildNode('a'));
    bench.api.compact();
    const watch = async () => {
      for await (const _event of bench.client.watch({ path: nodes, query: { resourceVersion: '1' } }));
    };
    expect(await failureOf(watch())).toMatchObject({ code: 'api-expired' });
    bench.api.failNext(nodes, 403);
    expect(await failureOf(watch())).toMatchObject({ code: 'api-forbidden' });
  });

  it('fails when the connection is lost, and closes the connection when the reader stops', async ({ own: bench }) => {
    const watch = async () => {
      for await (const _event of bench.client.watch({ path: nodes }));
    };
    const lost = failureOf(watch());
    await poll(() => bench.api.watchCount).toBe(1);
    bench.api.dropConnections();
    expect(await lost).toMatchObject({ code: 'api-unreachable' });

    bench.api.create(buildNode('a'));
    for await (const _event of bench.client.watch({ path: nodes })) break;
    await poll(() => bench.api.watchCount).toBe(0);
  });
});
