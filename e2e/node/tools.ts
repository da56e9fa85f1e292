import { join } from 'node:path';
import { programsFolder } from '../../programs/build.ts';
import { hasMusl } from '../../programs/toolchain.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { type DebianPackage, packageFolder } from '../../scripts/packages/debian-packages.ts';
import { hasProgram } from '../../scripts/packages/debian-programs.ts';
import { isStaticProgram } from '../../scripts/packages/elf.ts';
import { containerdVersion, findFolderWith, isProgram, pathFolders } from '../../scripts/packages/host-programs.ts';
import { NetdraError } from '../../src/lib/errors.ts';

/**
 * The two kinds of containerd that the suite runs on: `2.1` is the first 2.x that is 2.1 or newer (configuration
 * version 3, NRI and CDI on by default), `1.7` a 1.7.x (version 2, both off by default).
 */
export const containerdSeries = ['2.1', '1.7'] as const;
export type ContainerdSeries = (typeof containerdSeries)[number];

/** Programs of a node. All paths are absolute. */
export interface NodeTools {
  /** Folder with `containerd`, `ctr` and `containerd-shim-runc-v2`. */
  containerdDirs: Record<ContainerdSeries, string>;
  runc: string;
  /** Folder with the CNI plugins `bridge`, `host-local` and `loopback`. */
  cniBinDir: string;
  /** Statically linked. */
  busybox: string;
}

/** A requirement of the node that is neither on the machine nor in the cache. */
export class ToolError extends NetdraError {}

/** One tool: how to find it on the machine, or else its package. */
interface ToolSource {
  package: DebianPackage;
  /** Folder of the package that contains the programs. */
  packageDir: string;
  programs: string[];
  /** Folders in which the machine may have it. */
  hostDirs: string[];
  fits?: (folder: string) => boolean;
}

const containerdPrograms = ['containerd', 'ctr', 'containerd-shim-runc-v2'];

/**
 * Settings from the environment: `NETDRA_CONTAINERD_DIRS` and `NETDRA_CNI_BIN_DIR` (folders, separated by colons) and
 * `NETDRA_CACHE`. These folders come first, then the machine's own, then packages.
 */
export function toolSources(env: NodeJS.ProcessEnv): Record<'2.1' | '1.7' | 'runc' | 'cni' | 'busybox', ToolSource> {
  const path = pathFolders(env.PATH);
  const containerdDirs = [...pathFolders(env.NETDRA_CONTAINERD_DIRS), ...path];
  const containerd = (suite: string, fits: (version: string) => boolean): ToolSource => ({
    package: { name: 'containerd', suite },
    packageDir: 'usr/bin',
    programs: containerdPrograms,
    hostDirs: containerdDirs,
    fits: (folder) => fits(containerdVersion(join(folder, 'containerd')) ?? ''),
  });
  return {
    '2.1': containerd('forky', (version) => /^2\.([1-9]|\d\d)/.test(version)),
    '1.7': containerd('trixie', (version) => version.startsWith('1.7.')),
    runc: {
      package: { name: 'runc', suite: 'bookworm' },
      packageDir: 'usr/sbin',
      programs: ['runc'],
      hostDirs: path,
    },
    cni: {
      package: { name: 'containernetworking-plugins', suite: 'forky' },
      packageDir: 'usr/lib/cni',
      programs: ['bridge', 'host-local', 'loopback'],
      hostDirs: [...pathFolders(env.NETDRA_CNI_BIN_DIR), '/opt/cni/bin', '/usr/lib/cni', '/usr/libexec/cni'],
    },
    busybox: {
      package: { name: 'busybox-static', suite: 'bookworm' },
      packageDir: 'bin',
      programs: ['busybox'],
      hostDirs: path,
      fits: (folder) => isStaticProgram(join(folder, 'busybox')),
    },
  };
}

/** The folder on the machine or in the cache; `undefined` if the package must be fetched. */
export function findTool(source: ToolSource, cacheDir: string): string | undefined {
  const { programs, hostDirs, fits } = source;
  const onHost = hostDirs.find((folder) => findFolderWith([folder], programs) && (fits?.(folder) ?? true));
  if (onHost !== undefined) return onHost;
  const unpacked = join(packageFolder(cacheDir, source.package), source.packageDir);
  return programs.every((program) => isProgram(join(unpacked, program))) ? unpacked : undefined;
}

/** Returns whether `fetch-tools.ts` fetches nothing: the machine or the cache has all that it provides. */
export function hasTools(cacheDir: string, env: NodeJS.ProcessEnv): boolean {
  const areFound = Object.values(toolSources(env)).every((source) => findTool(source, cacheDir) !== undefined);
  return areFound && hasProgram('ip', cacheDir, env) && hasMusl(cacheDir, env);
}

/**
 * The start gate for a driver that runs on the machine: from NETDRA_TOOLS where there is no cache (e2e/vm).
 * @throws ToolError `tool-missing`
 */
export function locateGate(env: NodeJS.ProcessEnv = process.env): string {
  const path = join(env.NETDRA_TOOLS ?? programsFolder(cacheFolder(env), 'static'), 'netdra-gate');
  if (isProgram(path)) return path;
  throw new ToolError('tool-missing', `no netdra-gate at ${path}: it is built with gcc and make`, {
    path,
    hint: 'install gcc and make, and run this through scripts/in-node.sh',
  });
}

/**
 * Finds the programs of a node. Fetches nothing: a node has no network.
 * @throws ToolError `tool-missing`
 */
export function locateTools(env: NodeJS.ProcessEnv = process.env): NodeTools {
  const sources = toolSources(env);
  const locate = (name: keyof typeof sources): string => {
    const folder = findTool(sources[name], cacheFolder(env));
    if (folder !== undefined) return folder;
    throw new ToolError('tool-missing', `no ${name} on this machine (${sources[name].programs.join(', ')})`, {
      hint: 'run this through scripts/in-node.sh, which fetches it',
    });
  };
  return {
    containerdDirs: { '2.1': locate('2.1'), '1.7': locate('1.7') },
    runc: join(locate('runc'), 'runc'),
    cniBinDir: locate('cni'),
    busybox: join(locate('busybox'), 'busybox'),
  };
}
