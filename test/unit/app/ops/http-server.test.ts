import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { get } from 'node:http';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { ConnectionLimit } from '../../../../src/app/ops/connection-limit.ts';
import { Metrics, Readiness, serveHttp } from '../../../../src/app/ops/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { facts } from './node-facts.ts';

function create() {
  const metrics = new Metrics({ driver: 'sriov.example', version: '1.2.3', metadataEnabled: false });
  return { metrics, readiness: new Readiness(), address: '127.0.0.1:0', clock: systemClock };
}

describe('serveHttp', () => {
  it('answers /healthz with success from the start, and /readyz once connected to kubelet, runtime and API server', async () => {
    const options = create();
    await using server = await serveHttp(options);
    const get = async (path: string) => await fetch(`http://127.0.0.1:${server.port}${path}`);
    expect((await get('/healthz')).status).toBe(200);
    const before = await get('/readyz');
    expect(before.status).toBe(503);
    expect(await before.text()).toContain('[-]nri failed: not connected yet; is NRI enabled in the runtime?');
    for (const condition of ['kubelet', 'nri', 'slices'] as const) options.readiness.set(condition, { ok: true });
    expect((await get('/readyz')).status).toBe(200);
    options.readiness.set('nri', { ok: false, reason: 'connection lost' });
    const after = await get('/readyz');
    expect([after.status, await after.text()]).toEqual([
      503,
      '[+]kubelet ok\n[-]nri failed: connection lost\n[+]slices ok\n',
    ]);
  });

  it('serves metrics in the Prometheus text format, or as OpenMetrics', async () => {
    await using server = await serveHttp(create());
    const response = await fetch(`http://127.0.0.1:${server.port}/metrics`);
    expect(response.headers.get('content-type')).toContain('version=0.0.4');
    expect(await response.text()).toContain('dra_metadata_feature_enabled{driver_name="sriov.example"} 0');
    const headers = { accept: 'application/openmetrics-text' };
    const open = await fetch(`http://127.0.0.1:${server.port}/metrics`, { headers });
    expect(open.headers.get('content-type')).toContain('application/openmetrics-text');
  });

  it('reads the metrics of all requests within a second once', async () => {
    const clock = new ManualClock();
    const options = { ...create(), clock };
    let reads = 0;
    options.metrics.readFrom({ ...facts, metadataFiles: async () => ++reads });
    await using server = await serveHttp(options);
    const request = async () => await (await fetch(`http://127.0.0.1:${server.port}/metrics`)).text();
    const pages = await Promise.all(Array.from({ length: 200 }, request));
    expect(reads).toBe(1);
    expect(pages[199]).toContain('dra_metadata_files_active{driver_name="sriov.example"} 1');
    clock.advance(1_000);
    expect(await request()).toContain('dra_metadata_files_active{driver_name="sriov.example"} 2');
  });

  it('answers unknown paths and methods with a list of the known paths', async () => {
    await using server = await serveHttp(create());
    const url = `http://127.0.0.1:${server.port}`;
    expect((await fetch(`${url}/secrets`)).status).toBe(404);
    expect((await fetch(`${url}/metrics`, { method: 'POST' })).status).toBe(405);
    expect((await fetch(`${url}/healthz?verbose`, { method: 'HEAD' })).status).toBe(200);
    // A scanner sends what no URL can have.
    const [response] = await once(get({ port: server.port, host: '127.0.0.1', path: '//' }), 'response');
    expect(response.resume().statusCode).toBe(400);
  });

  it('closes the oldest idle connections of a client, so that probes are answered', async () => {
    await using server = await serveHttp(create());
    const idle = Array.from({ length: 40 }, () => connect(server.port, '127.0.0.1'));
    const ends = idle.map((socket) =>
      once(
        socket.on('error', () => undefined),
        'close',
      ),
    );
    await Promise.all(idle.map((socket) => once(socket, 'connect')));
    expect((await fetch(`http://127.0.0.1:${server.port}/healthz`)).status).toBe(200);
    await Promise.all(ends.slice(0, 9));
    expect(idle.filter(({ closed }) => !closed)).toHaveLength(31);
    for (const socket of idle) socket.destroy();
  });

  it('answers every probe while another process opens connections continuously', { timeout: 20_000 }, async () => {
    await using server = await serveHttp(create());
    const flood = `const { connect } = require('node:net');
      const one = () => connect(${server.port}, '127.0.0.1').on('error', () => {}).on('close', () => setImmediate(one));
      for (let n = 0; n < 150; n++) one();
      console.log('begun');`;
    const child = spawn(process.execPath, ['--eval', flood], { stdio: ['ignore', 'pipe', 'inherit'] });
    try {
      await once(child.stdout, 'data');
      for (let probe = 0; probe < 10; probe++) {
        const request = get({ port: server.port, host: '127.0.0.1', path: '/healthz', agent: false });
        const [response] = await once(request, 'response');
        expect(response.resume().statusCode).toBe(200);
        await sleep(100);
      }
    } finally {
      child.kill();
      await once(child, 'exit');
    }
  });

  it('limits connections from the node itself separately from remote connections', async () => {
    const limit = new ConnectionLimit();
    const closed: string[] = [];
    const open = (name: string, localAddress: string, remoteAddress: string) =>
      limit.add(
        Object.assign(new EventEmitter(), { localAddress, remoteAddress, destroy: () => closed.push(name) }) as never,
      );
    open('kubelet', '192.0.2.1', '192.0.2.1');
    open('loopback', '::ffff:127.0.0.1', '::ffff:127.0.0.1');
    for (let n = 0; n < 1_030; n++) open(`pod ${n}`, '192.0.2.1', '192.0.2.77');
    expect(closed).toEqual(['pod 0', 'pod 1', 'pod 2', 'pod 3', 'pod 4', 'pod 5']);
    limit[Symbol.dispose]();
    expect(closed).toHaveLength(1_032);
  });

  it('stops while clients are still connected', async () => {
    const server = await serveHttp(create());
    await (await fetch(`http://127.0.0.1:${server.port}/healthz`, { headers: { connection: 'keep-alive' } })).text();
    await server[Symbol.asyncDispose]();
    await expect(fetch(`http://127.0.0.1:${server.port}/healthz`)).rejects.toThrow();
  });
});
