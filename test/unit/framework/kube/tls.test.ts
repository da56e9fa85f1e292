import { writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { type Cluster, KubeConfig, type User } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { KubeClient } from '../../../../src/framework/kube/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { type Certificate, createCertificate } from '../../../doubles/certificate.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const base64 = (text: string) => Buffer.from(text).toString('base64');

/** An HTTPS server that returns what it knows about its client, and counts connections. */
async function startServer(own: Certificate, clients: Certificate[] = []) {
  let connections = 0;
  const options = {
    cert: own.certificate,
    key: own.key,
    ...(clients.length === 0 ? {} : { requestCert: true, ca: clients.map(({ certificate }) => certificate) }),
  };
  const server = createServer(options, (request, response) => {
    const socket = request.socket as import('node:tls').TLSSocket;
    const client = socket.authorized ? socket.getPeerCertificate().subject.CN : undefined;
    response.end(JSON.stringify({ client, authorization: request.headers.authorization }));
  });
  const open = new Set<object>();
  server.on('secureConnection', (socket) => {
    connections++;
    open.add(socket);
    socket.once('close', () => open.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connections: () => connections,
    open: () => open.size,
    /** Serves with another certificate from now on. */
    renew: (next: Certificate) => server.setSecureContext({ cert: next.certificate, key: next.key }),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function connect(cluster: Omit<Cluster, 'name'>, user: Omit<User, 'name'> = {}): KubeClient {
  const config = new KubeConfig();
  config.loadFromClusterAndUser({ name: 'c', ...cluster } as Cluster, { name: 'u', ...user });
  return new KubeClient(config, { clock: systemClock, userAgent: 'netdra' });
}

const ask = (client: KubeClient) => client.request({ method: 'GET', path: '/' });

describe('KubeClient over TLS', () => {
  it("trusts the cluster's certificate authority, and reuses the connection", async () => {
    const own = createCertificate('server');
    await using server = await startServer(own);
    using client = connect(
      { server: server.url, caData: base64(own.certificate), skipTLSVerify: false },
      { token: 'secret' },
    );
    for (let n = 0; n < 5; n++) expect(await ask(client)).toEqual({ authorization: 'Bearer secret' });
    expect(server.connections()).toBe(1);
  });

  it('rejects a server certificate signed by another authority', async () => {
    await using server = await startServer(createCertificate('server'));
    const other = createCertificate('other');
    using client = connect({ server: server.url, caData: base64(other.certificate), skipTLSVerify: false });
    const error = await ask(client).catch((cause) => cause);
    expect(error).toMatchObject({ code: 'api-unreachable' });
    expect(explain(error)).toMatch(/certificate/);
  });

  it('presents a client certificate', async () => {
    const [own, mine] = [createCertificate('server'), createCertificate('node-1')];
    await using server = await startServer(own, [mine]);
    using client = connect(
      { server: server.url, caData: base64(own.certificate), skipTLSVerify: false },
      { certData: base64(mine.certificate), keyData: base64(mine.key) },
    );
    expect(await ask(client)).toEqual({ client: 'node-1' });
  });

  it("reloads the certificate authority's file when it changes", async () => {
    using dir = tempDir();
    const caFile = join(dir.path, 'ca.crt');
    const [before, after] = [createCertificate('server'), createCertificate('server')];
    writeFileSync(caFile, before.certificate);
    await using server = await startServer(before);
    using client = connect({ server: server.url, caFile, skipTLSVerify: false });
    await ask(client);
    server.renew(after);
    writeFileSync(caFile, after.certificate);
    expect(await ask(client)).toEqual({});
    expect(server.connections()).toBe(2);
    // The connection that the earlier authority vouches for is closed.
    await expect.poll(() => server.open()).toBe(1);
  });
});
