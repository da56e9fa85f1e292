import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { join } from 'node:path';
import { run } from '../../../scripts/packages/run.ts';
import { Program } from '../../node/program.ts';
import type { CertificateAuthority } from './certificates.ts';

export interface KubeletFiles {
  /** Folder for certificates and configuration. Files contain this path, so the kubelet must see them there. */
  dir: string;
  nodeName: string;
  /** An address of the node where the API server reaches the kubelet. */
  nodeAddress: string;
  authority: CertificateAuthority;
  /** URL of the API server. */
  server: string;
  /** Socket of the container runtime. */
  runtimeSocket: string;
  /** The parent cgroup of pods. */
  cgroupRoot: string;
  featureGates?: Record<string, boolean>;
  /** Whether containers of Guaranteed pods that request whole CPUs get CPUs of their own. */
  pinsCpus?: boolean;
  /** After this time it looks again at pods, and from 1.37 on it retries what failed no later: `3s`; default 1 min. */
  syncFrequency?: string;
}

export interface KubeletOptions extends KubeletFiles {
  /** The program `kubelet`. Its log is in the folder `logs` of `dir`. */
  program: string;
}

/** Where kubelets keep their state: the default, as in the chart's values. */
export const kubeletDir = '/var/lib/kubelet';

const healthPort = 10_248;

/**
 * Starts a kubelet with a certificate of its node, like a real one: it may read and write objects of its own pods
 * (authorization mode Node). The container runtime has to be running.
 */
export async function startKubelet(options: KubeletOptions): Promise<Program> {
  const { dir, program } = options;
  const args = writeKubeletFiles(options);
  mountWholeProc();
  fixSysctls();
  makeCgroup(options.cgroupRoot);
  return await Program.start({ program, args, logPath: join(dir, 'logs', 'kubelet.log'), isReady: isHealthy });
}

/** Writes certificates and configuration of a kubelet. @returns its arguments */
export function writeKubeletFiles(options: KubeletFiles): string[] {
  const { dir, authority, nodeName, nodeAddress } = options;
  const kubeconfig = authority.kubeconfig('kubelet', `/O=system:nodes/CN=system:node:${nodeName}`, options.server);
  const config = join(dir, 'kubelet.yaml');
  writeFileSync(config, JSON.stringify(kubeletConfig(options), null, 2));
  const flags = { config, kubeconfig, 'node-ip': nodeAddress, 'hostname-override': nodeName, 'root-dir': kubeletDir };
  return Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
}

function kubeletConfig({ authority, nodeAddress, dir, ...options }: KubeletFiles): object {
  const serving = authority.sign('kubelet-server', `/O=system:nodes/CN=system:node:${options.nodeName}`, [
    `IP:${nodeAddress}`,
  ]);
  const resolvConf = join(dir, 'resolv.conf');
  writeFileSync(resolvConf, '');
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    address: nodeAddress,
    authentication: { x509: { clientCAFile: authority.own.certificate }, anonymous: { enabled: false } },
    authorization: { mode: 'Webhook' },
    tlsCertFile: serving.certificate,
    tlsPrivateKeyFile: serving.key,
    healthzBindAddress: '127.0.0.1',
    healthzPort: healthPort,
    containerRuntimeEndpoint: `unix://${options.runtimeSocket}`,
    resolvConf,
    // There is no systemd here, and the kubelet must not manage the cgroups above the node's own.
    cgroupDriver: 'cgroupfs',
    cgroupRoot: options.cgroupRoot,
    cgroupsPerQOS: true,
    // The default is below /usr, where it would remain.
    volumePluginDir: join(kubeletDir, 'volume-plugins'),
    enforceNodeAllocatable: [],
    failCgroupV1: false,
    failSwapOn: false,
    localStorageCapacityIsolation: false,
    // The disk and the memory are shared with everything else on this machine.
    evictionHard: { 'memory.available': '100Mi', 'nodefs.available': '1%', 'imagefs.available': '1%' },
    imageGCHighThresholdPercent: 100,
    protectKernelDefaults: true,
    featureGates: options.featureGates ?? {},
    ...(options.syncFrequency === undefined ? {} : { syncFrequency: options.syncFrequency }),
    // One CPU is kept for all others: part of one is enough for that, and leaves the rest to the requests of pods.
    ...(options.pinsCpus === true ? { cpuManagerPolicy: 'static', systemReserved: { cpu: '100m' } } : {}),
    maxPods: 250,
    // Many pods are created and deleted here.
    kubeAPIQPS: 200,
    kubeAPIBurst: 400,
  };
}

/**
 * The kernel lets a user namespace mount a proc only while its mount namespace has an uncovered one (EPERM
 * otherwise), and `fixSysctls` covers files of the one at `/proc`.
 */
function mountWholeProc(): void {
  const path = '/run/whole-proc';
  if (existsSync(path)) return;
  mkdirSync(path);
  run('mount', ['-t', 'proc', 'proc', path]);
}

/**
 * Kernel settings that a kubelet requires with `protectKernelDefaults`, by file below /proc/sys.
 * Source: kubelet reference, `protectKernelDefaults`.
 */
export const kubeletSysctls = {
  'vm/overcommit_memory': 1,
  'vm/panic_on_oom': 0,
  'kernel/panic': 10,
  'kernel/panic_on_oops': 1,
  'kernel/keys/root_maxkeys': 1_000_000,
  'kernel/keys/root_maxbytes': 25_000_000,
};

/**
 * Mounts files with these values over the settings, in this mount namespace only: the settings themselves belong to the
 * whole machine.
 */
function fixSysctls(): void {
  for (const [name, value] of Object.entries(kubeletSysctls)) {
    // One place for all successive clusters on a node: the mounts stay.
    const file = join('/run/netdra/sysctl', name);
    if (existsSync(file)) continue;
    mkdirSync(join(file, '..'), { recursive: true });
    writeFileSync(file, `${value}\n`);
    run('mount', ['--bind', file, `/proc/sys/${name}`]);
  }
}

/** In every hierarchy: those of cgroup v1 are folders in `/sys/fs/cgroup`, that of v2 is the folder itself. */
export function makeCgroup(cgroup: string): void {
  const root = '/sys/fs/cgroup';
  const hierarchies = existsSync(join(root, 'cgroup.controllers'))
    ? [root]
    : readdirSync(root, { withFileTypes: true }).flatMap((each) => (each.isDirectory() ? [join(root, each.name)] : []));
  for (const hierarchy of hierarchies) mkdirSync(join(hierarchy, cgroup), { recursive: true });
}

async function isHealthy(): Promise<boolean> {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  get({ host: '127.0.0.1', port: healthPort, path: '/healthz', agent: false, timeout: 2_000 }, (response) => {
    response.resume();
    resolve(response.statusCode === 200);
  }).on('error', reject);
  return await promise;
}
