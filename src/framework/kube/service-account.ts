import { existsSync, readFileSync } from 'node:fs';
import type { RequestOptions } from 'node:https';
import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../lib/clock.ts';
import type { ApiAccess } from './api-access.ts';

const serviceAccountDir = '/var/run/secrets/kubernetes.io/serviceaccount';
/** Age after which a token is read again, ms. The kubelet renews tokens long before they expire. */
const rereadMs = 10_000;

export interface ServiceAccountOptions {
  env?: NodeJS.ProcessEnv;
  dir?: string;
  clock?: Clock;
}

/** Returns whether the process runs in a pod with a service account. */
export function hasServiceAccount({ env = process.env, dir = serviceAccountDir }: ServiceAccountOptions = {}): boolean {
  return env.KUBERNETES_SERVICE_HOST !== undefined && existsSync(join(dir, 'token'));
}

/**
 * The service account of the driver's pod, with which a driver in a cluster reaches the API server. Replaces client-node, which
 * would take half of the driver's memory and startup time: docs/decisions/0065-where-the-drivers-time-goes.md. Source:
 * kubernetes.io "Accessing the Kubernetes API from a Pod".
 */
export class ServiceAccount implements ApiAccess {
  readonly #server: string;
  readonly #dir: string;
  readonly #clock: Clock;
  #read: { token: string; ca: string; atMs: number } | undefined;

  constructor({ env = process.env, dir = serviceAccountDir, clock = systemClock }: ServiceAccountOptions = {}) {
    const { KUBERNETES_SERVICE_HOST: host = '', KUBERNETES_SERVICE_PORT: port = '443' } = env;
    this.#server = `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
    this.#dir = dir;
    this.#clock = clock;
  }

  getCurrentCluster() {
    return { server: this.#server };
  }

  async applyToHTTPSOptions(options: RequestOptions): Promise<void> {
    const { token, ca } = this.#current();
    options.ca = ca;
    options.headers = { ...options.headers, authorization: `Bearer ${token}` };
  }

  #current(): { token: string; ca: string } {
    const nowMs = this.#clock.nowMs();
    if (this.#read === undefined || nowMs - this.#read.atMs >= rereadMs) {
      const [token, ca] = ['token', 'ca.crt'].map((name) => readFileSync(join(this.#dir, name), 'utf8').trim());
      this.#read = { token: token ?? '', ca: ca ?? '', atMs: nowMs };
    }
    return this.#read;
  }
}
