/** Forcibly removes what is left of a containerd after its own clean-up. */
import { spawnSync } from 'node:child_process';
import { readFileSync, rmdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { run } from '../../scripts/packages/run.ts';
import { errnoCode } from '../../src/lib/errors.ts';
import { type CriClient, CriError } from './cri.ts';
import { endSandbox } from './end-sandbox.ts';
import { listCgroupFolders, listFolder, listMountPoints, listProcesses, type ProcessInfo } from './host-state.ts';
import type { PodNetwork } from './pod-network.ts';

const cniResultsDir = '/var/lib/cni/results';

/** Asks the runtime to end all pods. Whatever it cannot end is left to the other functions here. */
export async function removePods(cri: CriClient): Promise<void> {
  try {
    const { items } = await cri.call('ListPodSandbox', {}, { timeoutMs: 5_000 });
    // Not in parallel: the hooks of a node run one after another anyway.
    for (const { id } of items) await endSandbox(cri, id, { timeoutMs: 15_000 });
  } catch (error) {
    if (!(error instanceof CriError)) throw error;
  }
}

/** Processes that belong to a containerd: its shims by their socket argument, containers by their cgroup. */
export function listOwnProcesses(socketPath: string, cgroupParent: string): ProcessInfo[] {
  const isOwn = (path: string) => path === cgroupParent || path.startsWith(`${cgroupParent}/`);
  return listProcesses().filter(
    ({ pid, args, cgroups }) =>
      pid !== process.pid && (args.some((arg) => arg.startsWith(socketPath)) || cgroups.some(isOwn)),
  );
}

/** Kills them by pid, until none is left. */
export async function endProcesses(socketPath: string, cgroupParent: string): Promise<void> {
  for (let tries = 0; tries < 100; tries++) {
    const processes = listOwnProcesses(socketPath, cgroupParent);
    if (processes.length === 0) return;
    for (const { pid } of processes) killProcess(pid);
    await sleep(20);
  }
}

/** Sends SIGKILL to a process, unless it has ended by itself. */
export function killProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if (errnoCode(error) !== 'ESRCH') throw error;
  }
}

/** Removes all mounts below a folder, the last one first. */
export function unmountBelow(dir: string): void {
  const points = listMountPoints().filter((point) => point.startsWith(`${dir}/`));
  for (const point of points.reverse()) {
    const { status, stderr } = spawnSync('umount', ['--lazy', point], { encoding: 'utf8' });
    // A program that ends meanwhile may have unmounted it.
    if (status !== 0 && listMountPoints().includes(point)) throw new Error(`${point} cannot be unmounted: ${stderr}`);
  }
}

/** Removes the network namespaces that are still in CNI's cache for a network, and the network's bridge. */
export function removeNetwork(network: PodNetwork): void {
  const results = listFolder(cniResultsDir).map(readCniResult);
  const sandboxIds = new Set(
    results.filter((each) => each.networkName === network.name).map((each) => each.containerId),
  );
  // The loopback of a pod is a separate network, with the same name for all pods.
  for (const { file, netnsPaths } of results.filter((each) => sandboxIds.has(each.containerId))) {
    for (const path of netnsPaths) removeNetns(path);
    rmSync(file);
  }
  if (listFolder('/sys/class/net').includes(network.bridge)) run('ip', ['link', 'delete', network.bridge]);
}

interface CniResult {
  file: string;
  networkName: string;
  /** Id of the sandbox. */
  containerId: string;
  netnsPaths: string[];
}

/** Older versions of libcni do not record the namespace itself, but plugins report the location of the interfaces. */
function readCniResult(name: string): CniResult {
  const file = join(cniResultsDir, name);
  const { networkName, containerId, result } = JSON.parse(readFileSync(file, 'utf8')) as {
    networkName: string;
    containerId: string;
    result?: { interfaces?: { sandbox?: string }[] };
  };
  const sandboxes = (result?.interfaces ?? []).map(({ sandbox = '' }) => sandbox);
  return { file, networkName, containerId, netnsPaths: [...new Set(sandboxes)].filter((path) => path !== '') };
}

function removeNetns(path: string): void {
  const real = path.replace(/^\/var\/run\//, '/run/');
  if (listMountPoints().includes(real)) run('umount', ['--lazy', real]);
  rmSync(real, { force: true });
}

export function removeCgroups(cgroupParent: string): void {
  for (const folder of listCgroupFolders(cgroupParent)) {
    try {
      rmdirSync(folder);
    } catch (error) {
      // Busy or gone: scripts/in-node.sh sweeps once more after every process has ended.
      if (!['EBUSY', 'ENOENT'].includes(errnoCode(error) ?? '')) throw error;
    }
  }
}
