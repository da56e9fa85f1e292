import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { run } from '../../scripts/packages/run.ts';
import { Program } from '../node/program.ts';
import { CertificateAuthority, makeSigningKey } from './node/certificates.ts';

/** Address of the API server: the first of the service network, so that pods reach it without kube-proxy. */
export const apiServerAddress = '10.96.0.1';

export interface ControlPlaneOptions {
  /** Folder for certificates, data and logs. */
  dir: string;
  /** The program `etcd`. */
  etcd: string;
  /** Folder with the programs of Kubernetes. */
  kubernetes: string;
  /** Feature gates that differ from the version's defaults. */
  featureGates?: Record<string, boolean>;
  /** API versions served in addition to the version's defaults: `resource.k8s.io/v1beta1`. */
  apiVersions?: readonly string[];
  /** Only etcd and the API server: for tests that need no controllers and no pods. */
  apiServerOnly?: boolean;
}

/**
 * The control plane of a cluster: etcd, API server, controller manager and scheduler, with certificates, and with the
 * authorization modes Node and RBAC.
 */
export class ControlPlane implements AsyncDisposable {
  readonly authority: CertificateAuthority;
  readonly server: string;
  /** Kubeconfig of a cluster administrator. */
  readonly adminKubeconfig: string;
  /** Absent while `apiServerOnly`. */
  readonly programs: { etcd: Program; apiServer: Program; controllerManager?: Program; scheduler?: Program };
  readonly #kubectl: string;
  readonly #stack: AsyncDisposableStack;

  private constructor(
    parts: Pick<ControlPlane, 'authority' | 'server' | 'adminKubeconfig' | 'programs'>,
    kubectl: string,
    stack: AsyncDisposableStack,
  ) {
    this.#kubectl = kubectl;
    this.authority = parts.authority;
    this.server = parts.server;
    this.adminKubeconfig = parts.adminKubeconfig;
    this.programs = parts.programs;
    this.#stack = stack;
  }

  /** Only on a separate node (scripts/in-node.sh): the addresses are added to its loopback interface. */
  static async start(options: ControlPlaneOptions): Promise<ControlPlane> {
    await using stack = new AsyncDisposableStack();
    const { dir, kubernetes } = options;
    const [pki, logs] = [join(dir, 'pki'), join(dir, 'logs')];
    for (const folder of [pki, logs]) mkdirSync(folder, { recursive: true });
    run('ip', ['address', 'replace', `${apiServerAddress}/32`, 'dev', 'lo']);
    const authority = new CertificateAuthority(pki);
    const server = `https://${apiServerAddress}`;
    const config = (name: string, subject: string) => authority.kubeconfig(name, subject, server);
    const adminKubeconfig = config('admin', '/O=system:masters/CN=e2e-admin');
    const signingKey = makeSigningKey(join(pki, 'service-accounts.key'));
    const gates = formatFeatureGates(options.featureGates ?? {});
    const start = async (program: string, args: string[], isReady: () => Promise<boolean>, logName = program) =>
      stack.use(await Program.start({ program, args, isReady, logPath: join(logs, `${logName}.log`) }));

    const etcd = await start(options.etcd, etcdArgs(join(dir, 'etcd')), () => isHealthy(etcdUrl), 'etcd');
    const ready = () => isApiServerReady(server, authority, pki);
    const apiServer = await start(
      join(kubernetes, 'kube-apiserver'),
      [...apiServerArgs(authority, signingKey), ...gates, ...formatApiVersions(options.apiVersions ?? [])],
      ready,
      'kube-apiserver',
    );
    const programs: ControlPlane['programs'] = { etcd, apiServer };
    if (!options.apiServerOnly) {
      const [controllers, scheduler] = ['kube-controller-manager', 'kube-scheduler'].map((name) => {
        const args = ['--kubeconfig', config(name, `/CN=system:${name}`), '--leader-elect=false'];
        return { program: join(kubernetes, name), name, args: [...args, '--bind-address=127.0.0.1', ...gates] };
      });
      const { own } = authority;
      const signing = ['--cluster-signing-cert-file', own.certificate, '--cluster-signing-key-file', own.key];
      const accounts = ['--root-ca-file', own.certificate, '--service-account-private-key-file', signingKey];
      controllers!.args.push(...signing, ...accounts, '--use-service-account-credentials');
      // The default is below /usr, where it would remain.
      controllers!.args.push(`--flex-volume-plugin-dir=${join(dir, 'volume-plugins')}`);
      const startNamed = ({ program, args, name }: NonNullable<typeof scheduler>, port: number) =>
        start(program, args, () => isHealthy(`https://127.0.0.1:${port}`), name);
      const [controllerManager, started] = await Promise.all([
        startNamed(controllers!, 10_257),
        startNamed(scheduler!, 10_259),
      ]);
      Object.assign(programs, { controllerManager, scheduler: started });
    }
    const kubectl = join(kubernetes, 'kubectl');
    return new ControlPlane({ authority, server, adminKubeconfig, programs }, kubectl, stack.move());
  }

  /** Runs kubectl as the administrator. @returns its output; on failure, the error text */
  kubectl(...args: string[]): string {
    const all = ['--kubeconfig', this.adminKubeconfig, ...args];
    const { stdout, stderr } = spawnSync(this.#kubectl, all, { encoding: 'utf8', timeout: 60_000 });
    return stdout + stderr;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

const etcdUrl = 'http://127.0.0.1:2379';

function etcdArgs(dataDir: string): string[] {
  const client = ['--listen-client-urls', etcdUrl, '--advertise-client-urls', etcdUrl];
  // No data outlives the suite, so nothing needs to be synced.
  return ['--data-dir', dataDir, ...client, '--listen-peer-urls', 'http://127.0.0.1:2380', '--unsafe-no-fsync'];
}

function apiServerArgs(authority: CertificateAuthority, signingKey: string): string[] {
  const { own } = authority;
  const names = ['', '.default', '.default.svc'].map((suffix) => `DNS:kubernetes${suffix}`);
  const serving = authority.sign('kube-apiserver', '/CN=kube-apiserver', [
    `IP:${apiServerAddress}`,
    'IP:127.0.0.1',
    ...names,
  ]);
  const kubelets = authority.sign('kubelet-client', '/O=system:masters/CN=kube-apiserver-kubelet-client');
  const flags = {
    'etcd-servers': etcdUrl,
    'secure-port': '443',
    'advertise-address': apiServerAddress,
    'service-cluster-ip-range': '10.96.0.0/16',
    'tls-cert-file': serving.certificate,
    'tls-private-key-file': serving.key,
    'client-ca-file': own.certificate,
    'authorization-mode': 'Node,RBAC',
    'enable-admission-plugins': 'NodeRestriction',
    'service-account-issuer': 'https://kubernetes.default.svc',
    'service-account-key-file': signingKey,
    'service-account-signing-key-file': signingKey,
    'kubelet-client-certificate': kubelets.certificate,
    'kubelet-client-key': kubelets.key,
    'kubelet-certificate-authority': own.certificate,
    'kubelet-preferred-address-types': 'InternalIP',
    'allow-privileged': 'true',
  };
  return Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
}

function formatFeatureGates(gates: Record<string, boolean>): string[] {
  const texts = Object.entries(gates).map(([name, value]) => `${name}=${value}`);
  return texts.length === 0 ? [] : [`--feature-gates=${texts.join(',')}`];
}

function formatApiVersions(versions: readonly string[]): string[] {
  return versions.length === 0 ? [] : [`--runtime-config=${versions.map((version) => `${version}=true`).join(',')}`];
}

/** With the administrator's certificate: an API server that accepts it has its RBAC rules. */
async function isApiServerReady(server: string, { own }: CertificateAuthority, pki: string): Promise<boolean> {
  const [cert, key] = ['admin.crt', 'admin.key'].map((name) => readFileSync(join(pki, name)));
  return await isOk(`${server}/readyz`, { ca: readFileSync(own.certificate), cert: cert!, key: key! });
}

/** The health of a component on loopback, which has a self-signed certificate. */
async function isHealthy(url: string): Promise<boolean> {
  if (url.startsWith('http:')) return (await fetch(`${url}/health`)).ok;
  return await isOk(`${url}/healthz`, { rejectUnauthorized: false });
}

async function isOk(url: string, options: object): Promise<boolean> {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  request(url, { ...options, timeout: 2_000, agent: false }, (response) => {
    response.resume();
    resolve(response.statusCode === 200);
  })
    .on('error', reject)
    .on('timeout', function (this: { destroy(): void }) {
      this.destroy();
    })
    .end();
  return await promise;
}
