import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { findForeignPlugin } from '../../node/foreign-cni.ts';
import { CommandError } from '../../node/packages/run.ts';
import { cacheFolder } from '../../node/tools.ts';
import { chartDir } from '../../release/chart.ts';
import { consumerImage, provideConsumerImage } from '../../release/consumer-image.ts';
import { locateDriverImage } from '../../release/driver-image.ts';
import { type HelmVersion, runHelm, valueArguments } from '../../release/helm.ts';
import type { ControlPlane } from '../control-plane.ts';
import type { ClusterTarget } from '../target.ts';
import { nodePaths, type RealNode } from './real-node.ts';

export const driverNamespace = 'netdra';
/** What the driver's pod shares with the node for the state of CNI plugins: the chart's default. */
export const cniStateDir = '/var/lib/cni';
const release = 'netdra';
const cacheDir = cacheFolder(process.env);

export interface DriverOptions {
  /** How many simulated VFs, as `kubeletPlugin.simulate` takes it. */
  simulate: string;
  /** Flags of the driver that the chart has no values for. */
  extraArgs?: readonly string[];
  /** Whether it may run the node's CNI plugins, as `cni.enabled` has it. Default: no. */
  cni?: boolean;
}

/**
 * The driver on a node as users install it: its image in a registry, its chart, an unprivileged DaemonSet with the rights
 * of its service account.
 */
export class InstalledDriver {
  /** What tests need to know of the cluster. */
  readonly target: ClusterTarget;
  /** The values that the chart was installed with. */
  readonly values: Record<string, unknown>;
  readonly #node: RealNode;

  private constructor(node: RealNode, values: Record<string, unknown>) {
    this.values = values;
    this.#node = node;
    this.target = { ...chartTarget(node.controlPlane, true), timeoutMs: node.runtime.endTimeoutMs };
  }

  /**
   * Pushes the driver's image, and gives the node the image of the tests. The chart is left to the caller.
   * @throws CommandError
   */
  static async prepare(node: RealNode, options: DriverOptions): Promise<InstalledDriver> {
    const { simulate, extraArgs = [], cni: enabled = false } = options;
    const { registry, runtime } = node;
    registry.push(locateDriverImage(cacheDir), 'netdra:e2e');
    await provideConsumerImage(runtime.dir, runtime.provideImage);
    const image = { repository: `${registry.address}/netdra`, tag: 'e2e' };
    const cni = { enabled, binDirectoryPath: enabled ? layOutPlugins(node) : runtime.cniBinDir };
    return new InstalledDriver(node, { image, cni, kubeletPlugin: { simulate, extraArgs, ...seccompOf(process.env) } });
  }

  /** The same, with the chart installed and the driver ready. @throws CommandError */
  static async install(node: RealNode, options: DriverOptions): Promise<InstalledDriver> {
    const driver = await InstalledDriver.prepare(node, options);
    const install = ['install', release, chartDir, '--create-namespace', '--wait', '--timeout', '3m'];
    driver.helm([...install, ...valueArguments(driver.values)]);
    return driver;
  }

  /** Runs Helm in the driver's namespace. @throws CommandError, with what the driver's pods say */
  helm(args: string[], version?: HelmVersion): string {
    const { adminKubeconfig: kubeconfig } = this.#node.controlPlane;
    const options = version === undefined ? { kubeconfig } : { kubeconfig, version };
    try {
      return runHelm(cacheDir, [...args, '--namespace', driverNamespace], options);
    } catch (cause) {
      throw new CommandError('helm-failed', `helm ${args[0]} failed:\n${this.describe()}`, { cause });
    }
  }

  /** Pods of the driver, their events and the end of their log. */
  describe(): string {
    const calls = [
      ['get', 'pods', '--output', 'wide'],
      ['get', 'events'],
      ['logs', 'daemonset/netdra', '--tail=20'],
    ];
    return calls.map((args) => this.#node.kubectl(...args, '--namespace', driverNamespace)).join('\n');
  }
}

/** For a run from which the profile is made, which must not be held back by the one before: see scripts/seccomp.ts. */
function seccompOf({ NETDRA_SECCOMP: profile }: NodeJS.ProcessEnv): { seccomp?: { profile: string } } {
  return profile === undefined ? {} : { seccomp: { profile } };
}

/** Adds plugins that the user has named to those of the node. @returns the folder with all of them */
function layOutPlugins({ dir, runtime: { cniBinDir } }: RealNode): string {
  const whereabouts = findForeignPlugin('whereabouts', process.env);
  if ('missing' in whereabouts) return cniBinDir;
  // Not links: the driver's pod mounts this folder only.
  const binDir = join(dir, 'cni-plugins');
  cpSync(cniBinDir, binDir, { recursive: true, dereference: true });
  cpSync(whereabouts.path, join(binDir, 'whereabouts'));
  return binDir;
}

/** A cluster that the chart is installed in, with its default values. */
export function chartTarget({ adminKubeconfig }: ControlPlane, simulated: boolean): ClusterTarget {
  return {
    kubeconfig: adminKubeconfig,
    driver: 'sriov.netdra.dev',
    driverNamespace,
    consumerImage,
    classes: { kernel: 'netdra-kernel', dpdk: 'netdra-dpdk' },
    simulated,
    paths: { kubeletPlugins: nodePaths.kubeletPlugins, cdi: nodePaths.cdi },
    admissionPolicies: true,
    keepFailed: false,
    oldestKubernetes: '1.34',
  };
}
