import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { run } from '../../../scripts/packages/run.ts';
import { formatToml } from '../../node/containerd-config.ts';
import { connectCri } from '../../node/cri.ts';
import { makePauseArchive, pauseImage } from '../../node/images.ts';
import type { PodRuntime } from '../../node/pod.ts';
import { claimPodNetwork, formatConflist, type PodNetwork, releasePodNetwork } from '../../node/pod-network.ts';
import { Program } from '../../node/program.ts';
import { endProcesses, removeCgroups, removeNetwork, removePods, unmountBelow } from '../../node/teardown.ts';
import { locateTools } from '../../node/tools.ts';
import type { Registry } from '../../release/registry.ts';
import { isOfUnfinishedSandbox, nriRequestTimeoutMs, type Runtime, type RuntimeOptions } from './runtime.ts';

/** Paths of the programs that make up a CRI-O. */
export interface CrioPrograms {
  kind: 'crio';
  crio: string;
  conmon: string;
  pinns: string;
  /** `crun` or `runc`. */
  ociRuntime: string;
}

/** Where CRI-O keeps the namespaces of pods, a folder for each kind: the default, as in the chart's values. */
const namespacesDir = '/var/run';
const namespaceKinds = ['netns', 'ipcns', 'utsns', 'userns'];
/** Prefix of the names of the suite's images. */
const localRegistry = 'localhost/';

/** Starts a CRI-O with its own root, state, socket, network and settings. @throws NodeError, ToolError, CommandError */
export async function startCrio(programs: CrioPrograms, options: RuntimeOptions): Promise<Runtime> {
  const { dir, registry } = options;
  await using stack = new AsyncDisposableStack();
  stack.use(mountHugetlb());
  const { cniBinDir, busybox } = locateTools();
  const network = stack.adopt(claimPodNetwork(), releasePodNetwork);
  const socketPath = join(dir, 'crio.sock');
  const cgroupParent = `${process.env.NETDRA_CGROUP_PARENT}/${network.name}`;
  const cri: PodRuntime = { ...connectCri(socketPath), cgroupParent, podLogsDir: join(dir, 'pod-logs') };
  stack.use(cri);
  layOut(programs, options, network, cniBinDir);
  const provideImage = async (archive: string, image: string) => {
    registry.push(archive, image.replace(localRegistry, ''));
  };
  const pauseArchive = join(dir, 'pause.tar');
  writeFileSync(pauseArchive, makePauseArchive(busybox));
  await provideImage(pauseArchive, pauseImage);
  stack.defer(async () => {
    await endProcesses(socketPath, cgroupParent);
    for (const kind of namespaceKinds) unmountBelow(join('/run', kind));
    unmountBelow(dir);
    removeNetwork(network);
    removeCgroups(cgroupParent);
  });
  const daemon = await Program.start({
    program: programs.crio,
    args: daemonArguments(dir),
    logPath: join(dir, 'crio.log'),
    isReady: async () => {
      await cri.call('Version', {}, { timeoutMs: 2_000 });
      return true;
    },
  });
  stack.use(daemon);
  stack.defer(() => removePods(cri));
  const owned = stack.move();
  let wasKilled = false;
  return {
    dir,
    socketPath,
    cri,
    network,
    cniBinDir,
    provideImage,
    volatileDirs: [join(dir, 'run'), ...namespaceKinds.map((kind) => join('/run', kind))],
    // A container that was created for a request of a killed kubelet is never started. As first process of its PID
    // namespace crun's `init` ignores SIGTERM: it is killed when the kubelet's timeout for StopPodSandbox ends, 2 min.
    endTimeoutMs: 150_000,
    async stop(signal) {
      wasKilled ||= signal === 'SIGKILL';
      await daemon.stop(signal);
    },
    start: () => daemon.start(),
    isOwnLeak: (leftover) => wasKilled && isOfUnfinishedSandbox(leftover),
    // Nothing is left that would prevent a restart.
    removeLeaks: () => undefined,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** Creates the folders and files that CRI-O needs to start. */
function layOut(programs: CrioPrograms, options: RuntimeOptions, network: PodNetwork, cniBinDir: string): void {
  const { dir, registry } = options;
  for (const name of ['cni', 'nri', 'run', 'tmp']) mkdirSync(join(dir, name));
  writeFileSync(join(dir, 'cni', '10-netdra.conflist'), formatConflist(network, join(dir, 'leases')));
  writeFileSync(join(dir, 'policy.json'), JSON.stringify({ default: [{ type: 'insecureAcceptAnything' }] }));
  writeFileSync(join(dir, 'registries.conf'), registriesConfig(registry));
  const ociRuntime = wrapOciRuntime(programs.ociRuntime, dir);
  writeFileSync(join(dir, 'crio.conf'), formatToml(crioConfig({ ...programs, ociRuntime }, options, cniBinDir)));
}

/** Nothing is read from the machine's `/etc`. */
function daemonArguments(dir: string): string[] {
  const registries = ['--registries-conf', join(dir, 'registries.conf'), '--registries-conf-dir', ''];
  return ['--config', join(dir, 'crio.conf'), '--config-dir', '', ...registries];
}

/**
 * Without CAP_SYS_RESOURCE an OCI runtime cannot lower `oom_score_adj`, as pods of `system-node-critical` request.
 * containerd has an option for that, CRI-O does not: a script removes such a value before the runtime sees it.
 * @returns path of the script
 */
function wrapOciRuntime(program: string, dir: string): string {
  const path = join(dir, 'bin', basename(program));
  mkdirSync(join(dir, 'bin'));
  const script = `#!/bin/sh
for argument; do
  if [ "$previous" = --bundle ]; then sed -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/' "$argument/config.json"; fi
  previous=$argument
done
exec ${program} "$@"
`;
  writeFileSync(path, script, { mode: 0o755 });
  return path;
}

/** The registry of the tests has no TLS. */
function registriesConfig({ address }: Registry): string {
  const entry = (prefix: string, location: string) =>
    `[[registry]]\nprefix = "${prefix}"\nlocation = "${location}"\ninsecure = true\n`;
  return `${entry(`${localRegistry}netdra`, `${address}/netdra`)}\n${entry(address, address)}`;
}

/** Differences from the defaults: our own folders, and settings for a machine without systemd. Source: crio.conf(5). */
function crioConfig(programs: CrioPrograms, options: RuntimeOptions, cniBinDir: string) {
  const { dir, cdiSpecDir, nriSocketPath } = options;
  const runDir = join(dir, 'run');
  const name = basename(programs.ociRuntime);
  return {
    crio: {
      root: join(dir, 'root'),
      runroot: join(runDir, 'storage'),
      log_dir: join(dir, 'pod-logs'),
      version_file: join(runDir, 'version'),
      clean_shutdown_file: join(dir, 'clean.shutdown'),
      api: { listen: join(dir, 'crio.sock') },
      runtime: {
        default_runtime: name,
        runtimes: {
          [name]: {
            runtime_path: programs.ociRuntime,
            runtime_root: join(runDir, name),
            monitor_path: programs.conmon,
            monitor_cgroup: 'pod',
          },
        },
        pinns_path: programs.pinns,
        namespaces_dir: namespacesDir,
        cgroup_manager: 'cgroupfs',
        cdi_spec_dirs: [cdiSpecDir],
        container_exits_dir: join(runDir, 'exits'),
        container_attach_socket_dir: runDir,
        // AppArmor is not needed here, and a loaded profile would outlive the node.
        apparmor_profile: 'unconfined',
        // No pod here uses a host port, and the interrupt settings belong to the machine.
        disable_hostport_mapping: true,
        irqbalance_config_restore_file: 'disable',
      },
      image: {
        pause_image: pauseImage,
        // Use the image's own command.
        pause_command: '',
        signature_policy: join(dir, 'policy.json'),
        big_files_temporary_dir: join(dir, 'tmp'),
      },
      network: { network_dir: join(dir, 'cni'), plugin_dirs: [cniBinDir] },
      nri: {
        nri_listen: nriSocketPath,
        nri_plugin_dir: join(dir, 'nri', 'plugins'),
        nri_plugin_config_dir: join(dir, 'nri', 'conf.d'),
        nri_plugin_request_timeout: `${nriRequestTimeoutMs}ms`,
      },
    },
  };
}

/**
 * Where cgroups are of version 1 with a second hierarchy of version 2 beside them, crun refuses to work if that one has
 * a controller, and runc cannot set the limits of huge pages that CRI-O requests. A version 1 hierarchy takes the huge
 * page controller away from the second one. It is mounted in this mount namespace only. Disposing removes it.
 */
function mountHugetlb(): AsyncDisposable {
  const stack = new AsyncDisposableStack();
  const root = '/sys/fs/cgroup';
  const controllers = join(root, 'unified', 'cgroup.controllers');
  if (!existsSync(controllers) || !readFileSync(controllers, 'utf8').includes('hugetlb')) return stack;
  // The folder itself belongs to the machine: a copy replaces it.
  const copy = '/run/netdra/cgroups';
  mkdirSync(copy);
  stack.defer(() => rmdirSync(copy));
  run('mount', ['-t', 'tmpfs', 'cgroups', copy]);
  stack.defer(() => void run('umount', ['--lazy', copy]));
  for (const name of readdirSync(root)) {
    mkdirSync(join(copy, name));
    run('mount', ['--rbind', join(root, name), join(copy, name)]);
  }
  mkdirSync(join(copy, 'hugetlb'));
  run('mount', ['-t', 'cgroup', '-o', 'hugetlb', 'cgroup', join(copy, 'hugetlb')]);
  run('mount', ['--rbind', copy, root]);
  stack.defer(async () => {
    // The hierarchy stays while it contains a cgroup, even one that the kernel has not freed yet.
    removeCgroups(process.env.NETDRA_CGROUP_PARENT ?? '');
    for (let tries = 0; tries < 100 && countHugetlbCgroups() > 1; tries++) await sleep(50);
    run('umount', ['--lazy', root]);
  });
  return stack;
}

/** Includes the root. Source: cgroups(7), `/proc/cgroups`. */
function countHugetlbCgroups(): number {
  return Number(/^hugetlb\t\d+\t(\d+)/m.exec(readFileSync('/proc/cgroups', 'utf8'))?.[1]);
}
