import { type AddressInfo, connect, type Socket } from 'node:net';
import { createServer } from 'node:tls';
import { createCertificate } from './certificate.ts';

/** An API server double with TLS, as in real clusters. */
export interface TlsFront extends AsyncDisposable {
  readonly port: number;
  /** PEM; its own authority. */
  readonly certificate: string;
}

/** Decrypts and forwards requests. @param url of the double */
export async function startTlsFront(url: string): Promise<TlsFront> {
  const own = createCertificate('kubernetes');
  const sockets = new Set<Socket>();
  const server = createServer({ cert: own.certificate, key: own.key }, (client) => {
    const upstream = connect(Number(new URL(url).port), '127.0.0.1');
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        // A pipe passes on an end, but not a broken connection: the client would wait forever.
        if (!other.writableEnded) other.destroy();
      });
    }
    client.pipe(upstream).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    certificate: own.certificate,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
