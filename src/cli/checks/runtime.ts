import { existsSync } from 'node:fs';
import { explain } from '../../lib/errors.ts';
import type { CriRuntime } from '../cri-runtime.ts';
import { resolvePath } from '../files.ts';
import { named, ok, problem, type Verdict, warning } from '../finding.ts';
import { deepCode } from '../nri-probe.ts';

export interface RuntimeCheck {
  /** Paths of sockets that the kubelet may use, in order of preference. */
  criSockets: string[];
  nriSocket: string;
  /** The driver's `--cdi-dir`. */
  cdiDir: string;
  /** Asks a runtime over CRI. @throws NetdraError if nothing answers at the socket */
  readCri(socketPath: string): Promise<CriRuntime>;
  /** Connects to a runtime over NRI. @throws NetdraError if the socket does not speak NRI */
  probeNri(socketPath: string): Promise<{ name: string; version: string; requestTimeoutMs: number }>;
}

/** Section of the documentation about a containerd that does not start because of leaked sandboxes. */
const leakedSandboxesPage = '"containerd does not start any more" in docs/troubleshooting.md';

interface Runtime {
  name: string;
  version: string;
}

/** Oldest releases with the NRI features that the driver needs. */
const oldest: Readonly<Record<string, [major: number, minor: number]>> = { containerd: [1, 7], 'cri-o': [1, 26] };

/** Checks the container runtime and its use of NRI and CDI. */
export async function checkRuntime(options: RuntimeCheck): Promise<Verdict[]> {
  const cri = await findCri(options);
  const nri = await attempt(() => options.probeNri(options.nriSocket));
  const runtime = cri.value ?? nri.value;
  return [
    ...(runtime === undefined ? [] : [checkVersion(runtime)]),
    ...(cri.value === undefined ? [named('CRI', noCri(options, cri.error))] : []),
    named('NRI', nri.value === undefined ? noNri(options, nri.error, cri.value) : nriOn(options, nri.value)),
    ...(cri.value === undefined ? [] : [named('CDI', await checkCdi(options, cri.value))]),
  ];
}

type Attempt<T> = { value: T; error?: undefined } | { value?: undefined; error: unknown };

async function attempt<T>(task: () => Promise<T>): Promise<Attempt<T>> {
  try {
    return { value: await task() };
  } catch (error) {
    return { error };
  }
}

async function findCri({ criSockets, readCri }: RuntimeCheck): Promise<Attempt<CriRuntime>> {
  let last: Attempt<CriRuntime> = { error: undefined };
  for (const socket of criSockets.filter((path) => existsSync(path))) {
    last = await attempt(() => readCri(socket));
    if (last.value !== undefined) return last;
  }
  return last;
}

function checkVersion({ name, version }: Runtime): Verdict {
  const message = `${name} ${version}`;
  const [, major, minor] = /^v?(\d+)\.(\d+)/.exec(version)?.map(Number) ?? [];
  const [oldMajor, oldMinor] = oldest[name] ?? [0, 0];
  if (major === undefined || minor === undefined) return ok(message);
  if (major < oldMajor || (major === oldMajor && minor < oldMinor)) {
    return problem(`${message} has no usable NRI`, `use ${name} ${oldMajor}.${oldMinor} or newer`);
  }
  if (!leaksSandboxes({ name, version })) return ok(message);
  const leak = `${message} leaks every sandbox that an NRI plugin refuses or whose start is cancelled, and may then fail to start again with "failed to reserve sandbox name"; the driver refuses none, other plugins may`;
  const fix = `use containerd 2.2.6, 2.3.3 or newer (2.0 and 2.1 have no fix), but remove leaked sandboxes first: ${leakedSandboxesPage}`;
  return warning(leak, fix);
}

/**
 * Number of the first patch release without the leak, by minor release; `Infinity`: no release. Source: containerd issues 13355
 * and 13609.
 */
const leakFixedIn: Readonly<Record<string, number>> = { '2.0': Infinity, '2.1': Infinity, '2.2': 6, '2.3': 3 };

/** Returns whether the runtime keeps a record of a refused or cancelled sandbox that can prevent its next start. */
export function leaksSandboxes({ name, version }: Runtime): boolean {
  if (name !== 'containerd') return false;
  const [, minor, patch] = /^v?(\d+\.\d+)\.(\d+)/.exec(version) ?? [];
  // A build that does not report its version may be affected.
  return minor === undefined || Number(patch) < (leakFixedIn[minor] ?? 0);
}

function noCri({ criSockets }: RuntimeCheck, error: unknown): Verdict {
  const [why, fix] =
    error === undefined
      ? ['is not there', 'run this on the node itself, or give --cri-socket']
      : ['does not answer', `start the runtime; if containerd fails to reserve a sandbox name: ${leakedSandboxesPage}`];
  return warning(`${criSockets.join(' or ')} ${why}, so CDI cannot be checked`, fix);
}

function nriOn({ nriSocket }: RuntimeCheck, { requestTimeoutMs }: { requestTimeoutMs: number }): Verdict {
  return ok(`answers at ${nriSocket}; ${requestTimeoutMs / 1000} s for each event`);
}

function noNri({ nriSocket }: RuntimeCheck, error: unknown, runtime: Runtime | undefined): Verdict {
  const code = deepCode(error);
  if (code === 'ENOENT') return problem(`off: there is no socket ${nriSocket}`, enableNri(runtime));
  if (code === 'ECONNREFUSED') {
    return problem(`off: no process listens at ${nriSocket}, a stale socket`, enableNri(runtime));
  }
  if (code === 'EACCES') return problem(`no permission to use ${nriSocket}`, 'run this as root');
  return problem(explain(error), 'check the log of the runtime; it registers one plugin at a time');
}

function enableNri(runtime: Runtime | undefined): string {
  const containerd =
    'set disable = false in [plugins."io.containerd.nri.v1.nri"] of /etc/containerd/config.toml, and restart containerd';
  if (runtime === undefined) return `in containerd: ${containerd}; in CRI-O: enable_nri = true in [crio.nri]`;
  if (runtime.name !== 'containerd')
    return 'set enable_nri = true in [crio.nri] of /etc/crio/crio.conf, and restart CRI-O';
  const isDefault = /^v?1\./.test(runtime.version) ? ' (off by default in 1.7)' : '';
  return containerd + isDefault;
}

async function checkCdi({ cdiDir }: RuntimeCheck, { name, version, cdi }: CriRuntime): Promise<Verdict> {
  const section = /^v?1\./.test(version) ? 'io.containerd.grpc.v1.cri' : 'io.containerd.cri.v1.runtime';
  const file = `[plugins."${section}"] of /etc/containerd/config.toml, and restart containerd`;
  const { enabled, specDirs } = cdi;
  if (enabled === false) {
    return problem('off: containers get neither their metadata nor /dev/vfio', `set enable_cdi = true in ${file}`);
  }
  if (enabled === undefined) {
    return warning(`${name} does not report whether it is on`, 'check the configuration of the runtime');
  }
  if (specDirs === undefined) return ok('on');
  const dirs = await Promise.all(specDirs.map(resolvePath));
  if (dirs.includes(await resolvePath(cdiDir))) return ok(`on, ${cdiDir} is scanned`);
  const message = `on, but the runtime looks at ${specDirs.join(', ') || 'no directory'} and not at ${cdiDir}`;
  const where = name === 'containerd' ? `cdi_spec_dirs in ${file}` : 'cdi_spec_dirs in [crio.runtime]';
  return problem(
    message,
    `set the driver's --cdi-dir to a directory that the runtime reads, or add the driver's directory to ${where}`,
  );
}
