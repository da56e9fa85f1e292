import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { CniUse } from '../../driver/api/cni-uses.ts';
import { gateProgramPath } from '../../framework/metadata/gate/install.ts';
import { errnoCode } from '../../lib/errors.ts';
import { listNames, readText, resolvePath, writeRefusal } from '../files.ts';
import { named, ok, problem, type Verdict, warning } from '../finding.ts';
import { mountOf, readMounts } from '../mounts.ts';

export interface DirectoriesCheck {
  /** The driver's own directory below the kubelet's `plugins`. */
  dataDir: string;
  kubeletRegistryDir: string;
  cdiDir: string;
  /** The driver's state directory. The same as `dataDir`, unless the operator sets another directory. */
  stateDir: string;
}

const noKubelet = 'is the kubelet running here, with this root directory?';

/** Checks the directories that the driver writes to. */
export async function checkDirectories(dirs: DirectoriesCheck): Promise<Verdict[]> {
  const { dataDir, kubeletRegistryDir, cdiDir, stateDir } = dirs;
  const plugins = await checkDir(dataDir, 1, `${noKubelet} see --kubelet-plugins-dir`);
  const registry = await checkDir(kubeletRegistryDir, 0, `${noKubelet} see --kubelet-registry-dir`);
  const verdicts = [
    named('plugin directory', plugins),
    named('kubelet registry', registry),
    named('CDI directory', await checkDir(cdiDir, 0, `mkdir -p ${cdiDir}`)),
  ];
  if (stateDir === dataDir) return verdicts;
  return [...verdicts, named('state directory', await checkDir(stateDir, Infinity, 'see --state-dir'))];
}

/**
 * Checks a directory. @param levels number of missing directories at the end of the path that the driver creates when it starts
 */
async function checkDir(path: string, levels: number, fixMissing: string): Promise<Verdict> {
  for (let [level, parent] = [0, path]; level <= levels; level++, parent = dirname(parent)) {
    const code = await writeRefusal(parent);
    if (code === undefined) return ok(`${path} ${level === 0 ? 'is writable' : 'will be created'}`);
    if (code === 'ENOENT' && parent !== '/') continue;
    const verb = level === 0 ? 'written' : `created in ${parent}`;
    return problem(`${path} cannot be ${verb} (${code})`, fixRefusal(code));
  }
  return problem(`${levels === 0 ? path : dirname(path)} does not exist`, fixMissing);
}

function fixRefusal(code: string): string {
  return code === 'EROFS' ? 'mount it writable' : 'run this as root, and mount it writable';
}

/** Field of a claim for each use of CNI plugins. */
const cniFields: Record<CniUse, string> = { attach: 'attach: cni', ipam: 'ipam' };

/** Checks the directories for the CNI plugins that claims may run. */
export async function checkCniPlugins(uses: readonly CniUse[], dirs: readonly string[]): Promise<Verdict[]> {
  if (uses.length === 0) return [];
  const plugins = (await Promise.all(dirs.map(listNames))).flat();
  if (plugins.length > 0) return [ok(`${plugins.length} in ${dirs.join(', ')}`)];
  const fields = uses.map((use) => cniFields[use]).join(' or ');
  const fix = 'install them, or pass their directories to the driver with --cni-bin-dirs';
  return [warning(`none in ${dirs.join(', ')}: claims with ${fields} fail`, fix)];
}

const noexecFix = 'mount it without noexec, or run the driver with --start-gate=file';

/** Checks that the runtime can run `netdra-gate`, in which containers wait. The driver installs the program when it starts. */
export async function checkGate(procDir: string, dataDir: string): Promise<Verdict[]> {
  const path = gateProgramPath(dataDir);
  try {
    // The kernel's answer takes mount options such as `noexec` into account.
    await access(path, constants.X_OK);
    return [ok(`${path} is executable`)];
  } catch (error) {
    const code = errnoCode(error);
    if (code !== 'ENOENT') return [problem(`${path} is not executable (${code})`, noexecFix)];
  }
  const mount = mountOf((await readMounts(procDir)) ?? [], await resolvePath(dataDir));
  if (!mount?.options.includes('noexec')) return [ok(`${path} will be installed`)];
  return [problem(`${path} cannot be executed: ${mount.path} is mounted noexec`, noexecFix)];
}

/** Numbers of capability bits. Source: Linux `capability.h`. */
const capabilities = { CAP_NET_ADMIN: 12, CAP_NET_RAW: 13, CAP_SYS_ADMIN: 21 } as const;
const reasons: Record<keyof typeof capabilities, string> = {
  CAP_NET_ADMIN: 'interfaces, addresses and routes cannot be set',
  CAP_NET_RAW: 'addresses of pods are not announced to their networks',
  CAP_SYS_ADMIN: 'the network namespaces of pods cannot be entered',
};

/** Checks the capabilities of this process. They are the driver's if both run in the same container. */
export async function checkCapabilities(procDir: string): Promise<Verdict[]> {
  const [, hex] = /^CapEff:\s*([0-9a-f]+)$/m.exec((await readText(join(procDir, 'self/status'))) ?? '') ?? [];
  if (hex === undefined) return [warning(`cannot be read in ${procDir}`, 'run this where /proc is mounted')];
  const effective = BigInt(`0x${hex}`);
  const names = Object.keys(capabilities) as (keyof typeof capabilities)[];
  const missing = names.filter((name) => ((effective >> BigInt(capabilities[name])) & 1n) === 0n);
  if (missing.length === 0) return [ok(names.join(', '))];
  return missing.map((name) =>
    problem(`${name} is missing: ${reasons[name]}`, 'run this as root, or add it to the container'),
  );
}

/** Checks that sysctls of interfaces are writable: the driver sets some of them on every interface that it moves into a pod. */
export async function checkProcSys(procSysDir: string): Promise<Verdict[]> {
  const path = join(procSysDir, 'net/ipv4/conf/lo/arp_notify');
  const code = await writeRefusal(path);
  if (code === undefined) return [ok(`${procSysDir}/net is writable`)];
  const message = `${path} cannot be written (${code}): interfaces of pods cannot be set up`;
  const fix = "mount the host's /proc/sys/net writable, and pass its parent as --proc-sys-dir";
  return [problem(message, fix)];
}

/**
 * Checks that network namespaces which the runtime mounts later become visible to this process. In a container the directory is
 * a mount of its own, to which the host's later mounts must propagate.
 * Source: Linux Documentation/filesystems/sharedsubtree.rst.
 */
export async function checkNetnsDir(procDir: string, netnsDir: string): Promise<Verdict[]> {
  const mounts = await readMounts(procDir);
  if (mounts === undefined) return [warning(`mounts cannot be read in ${procDir}`, 'run this where /proc is mounted')];
  const path = await resolvePath(netnsDir);
  const mount = mountOf(mounts, path);
  if (mount?.path !== path) return [ok(`${netnsDir} is not a separate mount`)];
  if (mount.propagation.some((field) => /^(shared|master):/.test(field)))
    return [ok(`new ones are visible in ${netnsDir}`)];
  const message = `new ones are not visible in ${netnsDir}: mounts of the host do not propagate here`;
  return [problem(message, `mount ${netnsDir} with mountPropagation: HostToContainer`)];
}
