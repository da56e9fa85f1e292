import { createHash } from 'node:crypto';
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent, type RequestOptions } from 'node:https';
import type { KubeConfig } from '@kubernetes/client-node';

/** Enough for the claims of several pods at once; more wait for a free connection. */
const maxSockets = 32;
/** Probes an idle connection, so that one whose other end is gone does not look alive. */
const keepAliveMs = 30_000;

/**
 * Connections to the API server that are used again and again. Who we are and whom we trust comes from the kubeconfig at
 * every request, since tokens and certificates are renewed while we run. The kubeconfig's own agent keeps no connection
 * open, so it is used only where it goes through a proxy.
 */
export class KubeConnection implements Disposable {
  readonly server: string;
  readonly #config: KubeConfig;
  #agent: HttpAgent | undefined;
  /** What {@link #agent} was made from. */
  #agentKey = '';

  /** @throws Error if the kubeconfig names no cluster */
  constructor(config: KubeConfig) {
    const cluster = config.getCurrentCluster();
    if (cluster === null) throw new Error('the kubeconfig has no current cluster');
    this.server = cluster.server.replace(/\/+$/, '');
    this.#config = config;
  }

  /** The options of a request: agent and headers that say who we are. @throws Error e.g. if a certificate is missing */
  async options(): Promise<RequestOptions> {
    const options: RequestOptions = {};
    await this.#config.applyToHTTPSOptions(options);
    const agent = this.#config.getCurrentCluster()?.proxyUrl === undefined ? this.#agentFor(options) : options.agent;
    const { headers = {}, auth } = options;
    return { headers, ...(auth == null ? {} : { auth }), ...(agent === undefined ? {} : { agent }) };
  }

  [Symbol.dispose](): void {
    this.#agent?.destroy();
    this.#agent = undefined;
    this.#agentKey = '';
  }

  #agentFor({ ca, cert, key, rejectUnauthorized, servername }: RequestOptions): HttpAgent {
    const trust = { ca, cert, key, rejectUnauthorized, servername };
    const agentKey = createHash('sha256').update(JSON.stringify(trust)).digest('hex');
    if (this.#agent !== undefined && this.#agentKey === agentKey) return this.#agent;
    // Requests on the way keep the old agent's sockets; it makes no new ones for us.
    const options = { keepAlive: true, keepAliveMsecs: keepAliveMs, maxSockets };
    const defined = Object.fromEntries(Object.entries(trust).filter(([, value]) => value !== undefined));
    this.#agent = this.server.startsWith('http:') ? new HttpAgent(options) : new HttpsAgent({ ...options, ...defined });
    this.#agentKey = agentKey;
    return this.#agent;
  }
}
