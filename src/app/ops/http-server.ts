import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { parseAddress } from '../../instance/parse-flags.ts';
import { type Clock, resolvesWithin, systemClock } from '../../lib/clock.ts';
import { errnoCode, NetdraError } from '../../lib/errors.ts';
import { shared } from '../../lib/shared.ts';
import { ConnectionLimit } from './connection-limit.ts';
import type { InstanceToken } from './instance-token.ts';
import { type Metrics, openMetricsType } from './metrics.ts';
import type { ProbeAnswer, Readiness } from './readiness.ts';
import type { SuccessorReport } from './successor-report.ts';
import type { TlsPair } from './tls-files.ts';

/** Timeout of a request, and of a TLS handshake, ms. */
const requestTimeoutMs = 10_000;
/** Time limit for the thread pool to read a file, ms. Less than the kubelet's timeout for a probe. */
const poolTimeoutMs = 3_000;
/** How long a page of metrics answers later requests, ms: any pod may send requests, and each page reads the whole node. */
const pageKeptMs = 1_000;

const addressHints: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program may use the port: choose another port with --http-address',
  EACCES: 'ports below 1024 need the capability NET_BIND_SERVICE: choose a higher port with --http-address',
};

interface HttpServerOptions {
  /**
   * Address to listen on: `HOST:PORT`, or `[HOST]:PORT` for IPv6. Without HOST: all addresses of the machine. Port 0: any free
   * port.
   */
  address: string;
  metrics: Metrics;
  readiness: Readiness;
  clock: Clock;
  /** Certificate and key. Absent: no TLS. */
  tls?: TlsPair;
  /** Token that answers challenges of other instances. Absent: challenges are not answered. */
  token?: InstanceToken;
  /** Revision of this instance's pod. */
  revision?: string;
  /** Readiness of another instance that waits for this address. */
  successor?: SuccessorReport;
}

type Page = Awaited<ReturnType<Metrics['render']>>;

/** Answers that concurrent requests share. */
interface SharedAnswers {
  metrics: () => Promise<Page>;
  openMetrics: () => Promise<Page>;
  poolAnswers: () => Promise<boolean>;
}

export type HttpServer = Awaited<ReturnType<typeof serveHttp>>;

/**
 * Serves `/metrics` for Prometheus, as OpenMetrics if the client accepts it, and two probes for the kubelet: `/healthz` answers
 * if the process can read files, `/readyz` if the driver can serve pods, and otherwise with 503 and the reasons.
 * `/readyz?revision=` answers for the instance of that revision.
 * @throws NetdraError `address-invalid`, `address-unavailable`
 */
export async function serveHttp(options: HttpServerOptions) {
  const { address, tls, metrics, clock } = options;
  const kept = { ms: pageKeptMs, clock };
  const answers: SharedAnswers = {
    metrics: shared(() => metrics.render(), kept),
    openMetrics: shared(() => metrics.render(openMetricsType), kept),
    poolAnswers: shared(poolAnswers),
  };
  const { host, port } = parseAddress(address);
  const listener: RequestListener = (request, response) => {
    answer(request, response, options, answers).catch((error: unknown) => {
      if (!response.headersSent) response.writeHead(500, { 'content-type': 'text/plain' });
      response.end(`${error instanceof Error ? error.message : String(error)}\n`);
    });
  };
  const tlsServer = tls && createTlsServer({ ...tls, handshakeTimeout: requestTimeoutMs }, listener);
  const server: Server | TlsServer = tlsServer ?? createServer(listener);
  // A client that sends nothing must not hold a connection forever.
  server.requestTimeout = requestTimeoutMs;
  // Includes connections whose TLS handshakes never end, which the server does not list.
  const connections = new ConnectionLimit();
  server.on('connection', (socket) => connections.add(socket));
  server.listen({ port, ...(host === undefined ? {} : { host }) });
  await once(server, 'listening').catch((cause: unknown) => {
    const hint = addressHints[errnoCode(cause) ?? ''] ?? 'choose an address of this node with --http-address';
    throw new NetdraError('address-unavailable', `cannot listen on ${address}`, { cause, hint });
  });
  return {
    port: (server.address() as AddressInfo).port,
    /** Sets the certificate for new connections; no effect on a server without TLS. */
    setTls: (pair: TlsPair) => tlsServer?.setSecureContext(pair),
    async [Symbol.asyncDispose]() {
      connections[Symbol.dispose]();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  options: HttpServerOptions,
  answers: SharedAnswers,
): Promise<void> {
  const { token } = options;
  const send = (status: number, text: string, contentType = 'text/plain; charset=utf-8') => {
    response.writeHead(status, { 'content-type': contentType });
    response.end(request.method === 'HEAD' ? undefined : text);
  };
  if (request.method !== 'GET' && request.method !== 'HEAD') return send(405, 'use GET or HEAD\n');
  const url = URL.parse(request.url ?? '/', 'http://localhost');
  if (url === null) return send(400, 'invalid path\n');
  switch (url.pathname) {
    case '/metrics': {
      const isOpen = request.headers.accept?.includes(openMetricsType);
      const { contentType, text } = await (isOpen ? answers.openMetrics() : answers.metrics());
      return send(200, text, contentType);
    }
    case '/healthz':
      return (await answers.poolAnswers())
        ? send(200, 'ok\n')
        : send(503, 'cannot read files: the thread pool is blocked\n');
    case '/readyz': {
      const { ready, report } = await readinessOf(url.searchParams.get('revision'), options);
      return send(ready ? 200 : 503, report);
    }
    case '/identity': {
      const nonce = url.searchParams.get('nonce');
      if (token === undefined || nonce === null) return send(404, 'no identity available\n');
      return send(200, token.prove(nonce.slice(0, 64)));
    }
    default:
      return send(404, 'not found; try /metrics, /healthz or /readyz\n');
  }
}

/**
 * Returns the readiness of the instance of a revision. After `kubectl rollout restart` two instances have the same revision.
 * The old one then answers with its own readiness while it is ready: otherwise the DaemonSet controller would end its pod.
 */
async function readinessOf(asked: string | null, options: HttpServerOptions): Promise<ProbeAnswer> {
  const { readiness, revision, successor } = options;
  const own = readiness.answer();
  if (asked === null || (asked === revision && own.ready)) return own;
  const waiting = await successor?.read(asked);
  if (waiting !== undefined || asked === revision) return waiting ?? own;
  return { ready: false, report: 'no instance of this revision has reported its readiness yet\n' };
}

/** Returns whether the thread pool can read a file. Blocked file systems can occupy all its threads. */
async function poolAnswers(): Promise<boolean> {
  return await resolvesWithin(systemClock, poolTimeoutMs, stat('/proc/self'));
}
