import { copyFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { run } from '../../../scripts/packages/run.ts';
import { ControlPlane } from '../../cluster/control-plane.ts';
import { chartTarget, driverNamespace } from '../../cluster/node/driver.ts';
import { kubeletDir, kubeletSysctls, writeKubeletFiles } from '../../cluster/node/kubelet.ts';
import { nodePaths } from '../../cluster/node/real-node.ts';
import type { ClusterPrograms } from '../../cluster/programs.ts';
import type { ClusterTarget } from '../../cluster/target.ts';
import { startContainerd } from '../../node/containerd.ts';
import { type ContainerdSettings, formatContainerdConfig } from '../../node/containerd-config.ts';
import { pauseImage } from '../../node/images.ts';
import { importArchive } from '../../node/import-archive.ts';
import { createPodNetwork, formatConflist } from '../../node/pod-network.ts';
import { chartDir } from '../../release/chart.ts';
import { provideConsumerImage } from '../../release/consumer-image.ts';
import { driverImage, writeDriverArchive } from '../../release/driver-image.ts';
import { runHelm, valueArguments } from '../../release/helm.ts';
import { Guest } from '../guest.ts';
import { writeExt4Image } from '../image/ext4.ts';
import { takeMachineParts } from '../parts.ts';
import { guestRunDir } from '../run-files.ts';
import { cableScript, parseVfStates, type pfNames, switchVfsScript, type VfState, vfStatesScript } from '../vfs.ts';

const nodeName = 'netdra-vm';
/** Timeout of each step: seconds on an idle machine, minutes on one that is busy with other tests. */
export const slowMs = 420_000;
/** The link between this machine and the guest. */
const link = { tap: 'vm0', host: '10.250.0.254', guest: '10.250.0.1', prefix: 24 };
const cacheDir = cacheFolder(process.env);
const repository = realpathSync(fileURLToPath(new URL('../../..', import.meta.url)));

const containerd: ContainerdSettings = {
  rootDir: '/var/lib/containerd',
  stateDir: '/run/containerd',
  socketPath: '/run/containerd/containerd.sock',
  optDir: '/run/containerd/opt',
  runc: '/usr/sbin/runc',
  snapshotter: 'overlayfs',
  sandboxImage: pauseImage,
  cniBinDir: '/usr/lib/cni',
  cniConfDir: '/etc/cni/net.d',
  cdiSpecDirs: [nodePaths.cdi],
  nri: {
    socketPath: join(nodePaths.nri, 'nri.sock'),
    pluginDir: '/etc/nri/plugins',
    pluginConfigDir: '/etc/nri/conf.d',
    registrationTimeoutMs: 20_000,
    // Processors are emulated: everything takes ten to thirty times as long.
    requestTimeoutMs: 20_000,
  },
};
const cgroupRoot = '/netdra';

/**
 * A cluster whose control plane is on this machine and whose only node, with real VFs, is virtual: container runtime,
 * kubelet and pods are in the guest. Only on a separate node (scripts/in-node.sh), so that the guest reaches nothing
 * else.
 */
export class GuestCluster implements AsyncDisposable {
  /** Folder of the run, shared with the guest. Logs are in its folder `logs`. */
  readonly dir: string;
  readonly controlPlane: ControlPlane;
  readonly guest: Guest;
  readonly #kubeletArgs: string[];
  readonly #stack: AsyncDisposableStack;

  private constructor(
    parts: Pick<GuestCluster, 'dir' | 'controlPlane' | 'guest'>,
    kubeletArgs: string[],
    stack: AsyncDisposableStack,
  ) {
    this.dir = parts.dir;
    this.controlPlane = parts.controlPlane;
    this.guest = parts.guest;
    this.#kubeletArgs = kubeletArgs;
    this.#stack = stack;
  }

  /** Starts everything except the driver. @throws MachineError, NodeError, CommandError */
  static async start(programs: ClusterPrograms, log: (line: string) => void): Promise<GuestCluster> {
    await using stack = new AsyncDisposableStack();
    const dir = mkdtempSync(join(tmpdir(), 'vm-'));
    stack.defer(() => rmSync(dir, { recursive: true, force: true }));
    stack.defer(() => collectLogs(dir));
    const { files, lock } = takeMachineParts({ repository, cacheDir: join(cacheDir, 'vm'), log });
    stack.use(lock);
    connectTap();
    const { etcd, kubernetes } = programs;
    const network = { address: `${link.guest}/${link.prefix}`, gateway: link.host };
    const machine = { ...files, repository, runDir: dir, dataDisk: join(dir, 'runtime.img'), tap: link.tap };
    prepareFiles(dir, kubernetes);
    await writeRuntimeDisk(dir, machine.dataDisk);
    log('the disk with the images is made');
    const starting = [
      Guest.start({ machine, network, log }).then((guest) => stack.use(guest)),
      ControlPlane.start({ dir, etcd, kubernetes }).then((controlPlane) => stack.use(controlPlane)),
    ] as const;
    // Waits for both before a failure of one is reported, so that neither is left behind.
    await Promise.allSettled(starting);
    const [guest, controlPlane] = await Promise.all(starting);
    log('machine and control plane are up');
    const { authority, server } = controlPlane;
    const kubelet = { dir, nodeName, nodeAddress: link.guest, authority, server, cgroupRoot };
    // A pod that finds no driver is tried again after this time: with the default, after a minute or more.
    const syncFrequency = '5s';
    const kubeletArgs = writeKubeletFiles({ ...kubelet, runtimeSocket: containerd.socketPath, syncFrequency });
    const cluster = new GuestCluster({ dir, controlPlane, guest }, kubeletArgs, stack.move());
    try {
      await cluster.#startNode();
      return cluster;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #startNode(): Promise<void> {
    const { dir } = this;
    const sysctls = Object.entries(kubeletSysctls).map(([name, value]) => `echo ${value} >/proc/sys/${name}`);
    await this.guest.run(`
      # Certificates and configuration have the paths that they have outside.
      mkdir -p ${join(dir, '..')} && ln -s ${guestRunDir} ${dir}
      mount --make-rshared /
      # An overlay, as the root is one, cannot hold those of the containers.
      mkdir -p ${kubeletDir} ${containerd.rootDir}
      mount -t tmpfs tmpfs ${kubeletDir}
      mount -t ext4 /dev/vdc ${containerd.rootDir}
      for controller in $(</sys/fs/cgroup/cgroup.controllers); do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
      done
      mkdir -p ${Object.values(nodePaths).join(' ')} ${containerd.cniConfDir} /sys/fs/cgroup${cgroupRoot}
      ${sysctls.join('\n')}
      cp ${dir}/pods.conflist ${containerd.cniConfDir}/
      cp ${dir}/kubelet /usr/bin/
      setsid containerd --config ${dir}/containerd.toml >>${dir}/logs/containerd.log 2>&1 </dev/null &
      until ctr version >/dev/null 2>&1; do sleep 0.2; done`);
    await this.startKubelet();
  }

  /** Installs the driver's chart with Helm. The image is on the node. @returns facts about the cluster for the tests */
  installDriver(): ClusterTarget {
    const { adminKubeconfig: kubeconfig } = this.controlPlane;
    const [repository, tag] = driverImage.split(/:(?=[^:]*$)/);
    const values = valueArguments({ image: { repository, tag, pullPolicy: 'Never' } });
    const install = ['install', 'netdra', chartDir, '--namespace', driverNamespace, '--create-namespace'];
    runHelm(cacheDir, [...install, ...values], { kubeconfig });
    return { ...chartTarget(this.controlPlane, false), timeoutMs: slowMs };
  }

  /** Does not wait for the node to be ready. */
  async startKubelet(): Promise<void> {
    const command = `setsid /usr/bin/kubelet ${this.#kubeletArgs.join(' ')}`;
    await this.guest.run(`${command} >>${this.dir}/logs/kubelet.log 2>&1 </dev/null & echo $! >/run/kubelet.pid`);
  }

  async killKubelet(): Promise<void> {
    await this.guest.run('kill -KILL "$(</run/kubelet.pid)"');
  }

  /** Kills the driver's process; the kubelet starts another one in the same pod. */
  async killDriver(): Promise<void> {
    await this.guest.run("pkill -KILL -f '^/usr/local/bin/node '");
  }

  /** All VFs whose interface is in the guest's own network namespace. */
  async vfStates(): Promise<VfState[]> {
    return parseVfStates(await this.guest.run(vfStatesScript));
  }

  /** Removes all VFs of a PF and has the card create them again. */
  async switchVfs(pf: string, count: number): Promise<void> {
    await this.guest.run(switchVfsScript(pf, count));
  }

  /** Pulls the cable of a PF, or plugs it in again. */
  async setCable(pf: (typeof pfNames)[number], isPlugged: boolean): Promise<void> {
    await this.guest.run(cableScript(pf, isPlugged));
  }

  /** Resets a PF through sysfs, as an administrator does; its VFs remain. */
  async resetPf(pf: string): Promise<void> {
    await this.guest.run(`echo 1 >/sys/class/net/${pf}/device/reset`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

function collectLogs(dir: string): void {
  const results = join(process.env.NETDRA_VM_RESULTS ?? join(repository, 'test-results/vm'), 'cluster');
  rmSync(results, { recursive: true, force: true });
  mkdirSync(results, { recursive: true });
  // If the start failed early, some of them do not exist.
  for (const name of ['logs', 'kernel.log'].filter((each) => existsSync(join(dir, each)))) {
    cpSync(join(dir, name), join(results, name), { recursive: true });
  }
}

/** Our end of the link to the guest. */
function connectTap(): void {
  run('ip', ['tuntap', 'add', 'dev', link.tap, 'mode', 'tap']);
  run('ip', ['address', 'add', `${link.host}/${link.prefix}`, 'dev', link.tap]);
  run('ip', ['link', 'set', link.tap, 'up']);
}

/** Writes the files that the guest reads from the folder of the run. */
function prepareFiles(dir: string, kubernetes: string): void {
  mkdirSync(join(dir, 'logs'), { recursive: true });
  copyFileSync(join(kubernetes, 'kubelet'), join(dir, 'kubelet'));
  writeFileSync(join(dir, 'containerd.toml'), formatContainerdConfig('2.1', containerd));
  writeFileSync(join(dir, 'pods.conflist'), formatConflist(createPodNetwork(0), '/run/cni/leases'));
}

/**
 * Creates a disk with the data of a containerd that has all images: imported here, since that takes a minute on the
 * guest's emulated processors.
 */
async function writeRuntimeDisk(dir: string, path: string): Promise<void> {
  const runtimeDir = join(dir, 'runtime');
  mkdirSync(runtimeDir);
  await using runtime = await startContainerd({ version: '2.1', dir: runtimeDir });
  const archive = join(runtimeDir, 'driver.tar');
  writeDriverArchive(archive, cacheDir);
  await importArchive(runtime, archive, [driverImage]);
  await provideConsumerImage(runtimeDir, (path, image) => importArchive(runtime, path, [image]));
  await runtime.stop();
  writeExt4Image(path, join(runtimeDir, 'root'), 512 * 1_024);
}
