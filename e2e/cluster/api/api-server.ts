import { type ChildProcess, spawn } from 'node:child_process';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { get, type RequestOptions } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { KubeConfig } from '@kubernetes/client-node';
import { NetdraError } from '../../../src/errors.ts';

/** etcd or kube-apiserver did not start. */
export class ControlPlaneError extends NetdraError {}

/** Paths of the programs. */
export interface ApiServerPrograms {
  etcd: string;
  kubeApiserver: string;
}

/** A real kube-apiserver on 127.0.0.1, without anything that acts on its objects. Disposing ends it and its etcd. */
export interface RunningApiServer extends AsyncDisposable {
  /** @param token of a user; default: the administrator's */
  kubeConfig(token?: string): KubeConfig;
}

const ports = { etcd: 2379, etcdPeers: 2380, api: 6443 };
const startTimeoutMs = 60_000;

/**
 * Starts etcd and kube-apiserver with Node and RBAC authorization and waits until it is ready. Ports are fixed, so only on
 * a node of its own (scripts/in-node.sh).
 * @throws ControlPlaneError `control-plane-failed` with the end of the program's log
 */
export async function startApiServer({ etcd, kubeApiserver }: ApiServerPrograms): Promise<RunningApiServer> {
  await using stack = new AsyncDisposableStack();
  const dir = mkdtempSync(join(tmpdir(), 'netdra-api-'));
  stack.defer(() => rmSync(dir, { recursive: true, force: true }));
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const adminToken = randomUUID();
  const write = (name: string, text: string | Buffer) => {
    writeFileSync(join(dir, name), text, { mode: 0o600 });
    return join(dir, name);
  };
  const signingKey = write('sa.key', privateKey.export({ type: 'pkcs8', format: 'pem' }));
  const verificationKey = write('sa.pub', publicKey.export({ type: 'spki', format: 'pem' }));
  const tokens = write('tokens.csv', `${adminToken},admin,admin,system:masters\n`);
  stack.use(
    new Program(etcd, join(dir, 'etcd.log'), [
      `--data-dir=${join(dir, 'etcd')}`,
      `--listen-client-urls=http://127.0.0.1:${ports.etcd}`,
      `--advertise-client-urls=http://127.0.0.1:${ports.etcd}`,
      `--listen-peer-urls=http://127.0.0.1:${ports.etcdPeers}`,
      // Nobody needs the data after a power loss.
      '--unsafe-no-fsync',
    ]),
  );
  const server = stack.use(
    new Program(kubeApiserver, join(dir, 'kube-apiserver.log'), [
      `--etcd-servers=http://127.0.0.1:${ports.etcd}`,
      '--bind-address=127.0.0.1',
      '--advertise-address=10.96.0.1',
      `--secure-port=${ports.api}`,
      `--cert-dir=${join(dir, 'certificates')}`,
      '--authorization-mode=Node,RBAC',
      `--token-auth-file=${tokens}`,
      '--service-cluster-ip-range=10.96.0.0/16',
      // There is no node that reaches this server by its service.
      '--endpoint-reconciler-type=none',
      '--service-account-issuer=https://kubernetes.default.svc',
      `--service-account-key-file=${verificationKey}`,
      `--service-account-signing-key-file=${signingKey}`,
    ]),
  );
  const running = {
    kubeConfig(token = adminToken) {
      const config = new KubeConfig();
      config.loadFromOptions({
        clusters: [
          {
            name: 'test',
            server: `https://127.0.0.1:${ports.api}`,
            caFile: join(dir, 'certificates', 'apiserver.crt'),
          },
        ],
        users: [{ name: 'user', token }],
        contexts: [{ name: 'test', cluster: 'test', user: 'user' }],
        currentContext: 'test',
      });
      return config;
    },
  };
  await server.until(async () => (await fetchReadiness(running.kubeConfig())) === 'ok', startTimeoutMs);
  const owned = stack.move();
  return { ...running, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

async function fetchReadiness(config: KubeConfig): Promise<string> {
  const options: RequestOptions = { timeout: 1_000 };
  await config.applyToHTTPSOptions(options);
  const answer = get(`${config.getCurrentCluster()?.server}/readyz`, options);
  const [response] = await once(answer, 'response');
  return (await text(response)).trim();
}

/** A process whose output goes to a file. */
class Program implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown>;
  readonly #logPath: string;

  constructor(path: string, logPath: string, args: string[]) {
    const log = openSync(logPath, 'w');
    this.#child = spawn(path, args, { stdio: ['ignore', log, log] });
    closeSync(log);
    this.#logPath = logPath;
    this.#exit = once(this.#child, 'exit').catch(() => undefined);
  }

  /** Waits for a condition; one that throws is not fulfilled yet. @throws ControlPlaneError when the process ends first */
  async until(isFulfilled: () => Promise<boolean>, timeoutMs: number): Promise<void> {
    const endsAt = performance.now() + timeoutMs;
    for (let cause: unknown; ; await sleep(50)) {
      try {
        if (await isFulfilled()) return;
      } catch (error) {
        cause = error;
      }
      if (this.#child.exitCode === null && performance.now() < endsAt) continue;
      const tail = readFileSync(this.#logPath, 'utf8').split('\n').slice(-30).join('\n');
      throw new ControlPlaneError(
        'control-plane-failed',
        `${this.#child.spawnfile} is not ready; its log ends\n${tail}`,
        {
          cause,
          path: this.#logPath,
        },
      );
    }
  }

  async [Symbol.asyncDispose]() {
    if (this.#child.exitCode === null && this.#child.signalCode === null) this.#child.kill('SIGKILL');
    await this.#exit;
  }
}
