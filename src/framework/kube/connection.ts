import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent, type RequestOptions } from 'node:https';
import { createSecureContext } from 'node:tls';
import { urlToHttpOptions } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { defined } from '../../lib/defined.ts';
import type { ApiAccess } from './api-access.ts';

/** Number of connections: enough for the claims of several pods at once. Further requests wait for a free connection. */
const maxSockets = 32;
/** Interval of the probes that detect a dead peer of an idle connection, ms. */
const keepAliveMs = 30_000;

/**
 * Reused connections to the API server. Takes credentials and trusted certificates from the kubeconfig at every request, since
 * tokens and certificates are renewed. With a proxy, the kubeconfig's own agent is used, although it keeps no connection open.
 */
export class KubeConnection implements Disposable {
  /** Address of the API server, as options of a request; `path` is the prefix of all request paths. */
  readonly server: Pick<RequestOptions, 'protocol' | 'hostname' | 'port'> & { path: string };
  readonly #access: ApiAccess;
  #agent: HttpAgent | undefined;
  /** Trusted certificates and client certificate that {@link #agent} was created with. */
  #trust: object | undefined;

  /** Opens no connection yet. @throws Error if the kubeconfig names no cluster */
  constructor(access: ApiAccess) {
    const cluster = access.getCurrentCluster();
    if (cluster === null) throw new Error('the kubeconfig has no current cluster');
    const url = new URL(cluster.server);
    const { protocol, hostname, port } = urlToHttpOptions(url);
    const path = url.pathname.replace(/\/+$/, '');
    this.server = { protocol, hostname, path, ...defined({ port }) };
    this.#access = access;
  }

  /** Returns request options: agent and headers with our credentials. @throws Error e.g. if a certificate is missing */
  async options(): Promise<RequestOptions> {
    const options: RequestOptions = {};
    await this.#access.applyToHTTPSOptions(options);
    const agent = this.#access.getCurrentCluster()?.proxyUrl === undefined ? this.#agentFor(options) : options.agent;
    const { headers = {}, auth } = options;
    return { headers, ...defined({ auth: auth ?? undefined, agent }) };
  }

  [Symbol.dispose](): void {
    this.#agent?.destroy();
    this.#agent = undefined;
    this.#trust = undefined;
  }

  #agentFor({ ca, cert, key, rejectUnauthorized, servername }: RequestOptions): HttpAgent {
    const trust = { ca, cert, key, rejectUnauthorized, servername };
    if (this.#agent !== undefined && isDeepStrictEqual(this.#trust, trust)) return this.#agent;
    if (this.#agent !== undefined) closeIdle(this.#agent);
    const options = { keepAlive: true, keepAliveMsecs: keepAliveMs, maxSockets };
    // The certificates are parsed once, not for each connection: a burst of pods opens up to thirty.
    const secure = () => ({
      ...defined({ rejectUnauthorized, servername }),
      secureContext: createSecureContext(defined({ ca, cert, key })),
    });
    this.#agent =
      this.server.protocol === 'http:' ? new HttpAgent(options) : new HttpsAgent({ ...options, ...secure() });
    this.#trust = trust;
    return this.#agent;
  }
}

/**
 * Closes idle connections now and connections in use after their requests, so that no connection outlives the certificates with
 * which it was opened.
 */
function closeIdle(agent: HttpAgent): void {
  agent.maxFreeSockets = 0;
  for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
}
