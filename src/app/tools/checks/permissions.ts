import { join } from 'node:path';
import { readText, resolvePath, writeRefusal } from '../files.ts';
import { type Finding, ok, problem, warning } from '../finding.ts';
import { mountOf, readMounts } from '../mounts.ts';

/** Bits of Linux `capability.h`. */
const capabilities = { CAP_NET_ADMIN: 12, CAP_SYS_ADMIN: 21 } as const;
const reasons: Record<keyof typeof capabilities, string> = {
  CAP_NET_ADMIN: 'interfaces, addresses and routes cannot be set',
  CAP_SYS_ADMIN: 'the network namespaces of pods cannot be entered',
};

/** Capabilities of this process, which are the driver's where both run in the same container. */
export async function checkCapabilities(procDir: string): Promise<Finding[]> {
  const [, hex] = /^CapEff:\s*([0-9a-f]+)$/m.exec((await readText(join(procDir, 'self/status'))) ?? '') ?? [];
  if (hex === undefined) return [warning('capabilities', `cannot be read in ${procDir}`, 'run this where /proc is')];
  const effective = BigInt(`0x${hex}`);
  const names = Object.keys(capabilities) as (keyof typeof capabilities)[];
  const missing = names.filter((name) => ((effective >> BigInt(capabilities[name])) & 1n) === 0n);
  if (missing.length === 0) return [ok('capabilities', names.join(', '))];
  return missing.map((name) =>
    problem('capabilities', `${name} is missing: ${reasons[name]}`, 'run this as root, or add it to the container'),
  );
}

/** Settings of interfaces, for claims with `sysctls`. Nothing else writes there. */
export async function checkProcSys(procSysDir: string): Promise<Finding[]> {
  const check = 'sysctls';
  const path = join(procSysDir, 'net/ipv4/conf/lo/arp_notify');
  const code = await writeRefusal(path);
  if (code === undefined) return [ok(check, `${procSysDir}/net can be written`)];
  const message = `${path} cannot be written (${code}): claims with sysctls fail`;
  const fix = "mount the host's /proc/sys/net writable, and give its parent as --proc-sys-dir";
  return [warning(check, message, fix)];
}

/**
 * Whether namespaces that the runtime mounts later are visible here. In a container the directory is a mount of its
 * own, which has to receive the host's mounts.
 * Source: Linux Documentation/filesystems/sharedsubtree.rst.
 */
export async function checkNetnsDir(procDir: string, netnsDir: string): Promise<Finding[]> {
  const check = 'network namespaces';
  const mounts = await readMounts(procDir);
  if (mounts === undefined) return [warning(check, `mounts cannot be read in ${procDir}`, 'run this where /proc is')];
  const path = await resolvePath(netnsDir);
  const mount = mountOf(mounts, path);
  if (mount?.path !== path) return [ok(check, `${netnsDir} is part of the file system here`)];
  if (mount.propagation.some((field) => /^(shared|master):/.test(field)))
    return [ok(check, `new ones are seen in ${netnsDir}`)];
  const message = `new ones are not seen in ${netnsDir}: what is mounted on the host does not come here`;
  return [problem(check, message, `mount ${netnsDir} with mountPropagation: HostToContainer`)];
}
