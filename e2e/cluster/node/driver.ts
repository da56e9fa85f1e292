import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { CommandError } from '../../../scripts/packages/run.ts';
import { findForeignPlugin } from '../../node/foreign-cni.ts';
import { chartDir } from '../../release/chart.ts';
import { consumerImage, provideConsumerImage } from '../../release/consumer-image.ts';
import { locateDriverImage } from '../../release/driver-image.ts';
import { type HelmVersion, runHelm, valueArguments } from '../../release/helm.ts';
import type { ControlPlane } from '../control-plane.ts';
import type { ClusterTarget } from '../target.ts';
import { nodePaths, type RealNode } from './real-node.ts';

export const driverNamespace = 'netdra';
/** Node folder for the layout `downward-api`. The chart's default is in /etc, which a node shares with its machine. */
export const downwardApiDir = '/var/lib/dra';
/** Node folder that the driver's pod mounts for the state of CNI plugins: the chart's default. */
export const cniStateDir = '/var/lib/cni';
const release = 'netdra';
const cacheDir = cacheFolder(process.env);

export interface DriverOptions {
  /** Number of simulated VFs, in the form of `kubeletPlugin.simulate`. */
  simulate: string;
  /** Flags of the driver that the chart has no values for. */
  extraArgs?: readonly string[];
  /** Whether it may run the node's CNI plugins, as in `cni.enabled`. Default: no. */
  cni?: boolean;
  /** Whether claims may have addresses of pools, as in `addressPools.enabled`. Default: no. */
  addressPools?: boolean;
  /** As `kubeletPlugin.listAttributes`. */
  listAttributes?: boolean;
}

/**
 * The driver on a node as users install it: image in a registry, chart, unprivileged DaemonSet with the permissions
 * of its service account.
 */
export class InstalledDriver {
  /** Facts about the cluster for the tests. */
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
   * Pushes the driver's image, and provides the node with the test image. The caller installs the chart.
   * @throws CommandError
   */
  static async prepare(node: RealNode, options: DriverOptions): Promise<InstalledDriver> {
    const { simulate, extraArgs = [], cni: enabled = false, addressPools = false, listAttributes = false } = options;
    const { registry, runtime } = node;
    registry.push(locateDriverImage(cacheDir), 'netdra:e2e');
    await provideConsumerImage(runtime.dir, runtime.provideImage);
    const image = { repository: `${registry.address}/netdra`, tag: 'e2e' };
    const cni = { enabled, binDirectoryPath: enabled ? layOutPlugins(node) : runtime.cniBinDir };
    const directories = { downwardApiDirectoryPath: downwardApiDir };
    // The node's only instance: nothing waits for it to show that it stays, as Helm and `kubectl rollout status` would.
    const kubeletPlugin = {
      simulate,
      extraArgs,
      listAttributes,
      minReadySeconds: 0,
      ...directories,
      ...seccompOf(process.env),
    };
    return new InstalledDriver(node, { image, cni, kubeletPlugin, addressPools: { enabled: addressPools } });
  }

  /** Also installs the chart and waits until the driver is ready. @throws CommandError */
  static async install(node: RealNode, options: DriverOptions): Promise<InstalledDriver> {
    const driver = await InstalledDriver.prepare(node, options);
    const install = ['install', release, chartDir, '--create-namespace', '--wait', '--timeout', '3m'];
    driver.helm([...install, ...valueArguments(driver.values)]);
    return driver;
  }

  /** Changes values of the installed chart, named by their paths, and waits until its new instance is ready. @throws CommandError */
  upgrade(values: Record<string, unknown>): void {
    const args = ['upgrade', release, chartDir, '--reuse-values', '--wait', '--timeout', '3m'];
    this.helm([...args, ...valueArguments(values)]);
  }

  /** Runs Helm in the driver's namespace. @throws CommandError, with events and logs of the driver's pods */
  helm(args: string[], version?: HelmVersion): string {
    const { adminKubeconfig: kubeconfig } = this.#node.controlPlane;
    const options = version === undefined ? { kubeconfig } : { kubeconfig, version };
    try {
      return runHelm(cacheDir, [...args, '--namespace', driverNamespace], options);
    } catch (cause) {
      throw new CommandError('helm-failed', `helm ${args[0]} failed:\n${describeDriver(this.#node)}`, { cause });
    }
  }
}

/** Pods of the driver, their events and the end of their logs. */
function describeDriver(node: RealNode): string {
  const calls = [
    ['get', 'pods', '--output', 'wide'],
    ['get', 'events'],
    ['logs', '--selector=app.kubernetes.io/name=netdra', '--all-containers', '--prefix', '--tail=20'],
  ];
  return calls.map((args) => node.kubectl(...args, '--namespace', driverNamespace)).join('\n');
}

/** For a run that makes the profile, which the previous profile must not restrict: see scripts/seccomp.ts. */
function seccompOf({ NETDRA_SECCOMP: profile }: NodeJS.ProcessEnv): { seccomp?: { profile: string } } {
  return profile === undefined ? {} : { seccomp: { profile } };
}

/** Node folder with the CNI plugins that the driver may run. */
export function cniPluginDir({ dir }: Pick<RealNode, 'dir'>): string {
  return join(dir, 'cni-plugins');
}

/** Adds plugins named by the user to those of the node. @returns the folder with all of them */
function layOutPlugins(node: RealNode): string {
  // Copies, not links: the driver's pod mounts this folder only.
  const binDir = cniPluginDir(node);
  cpSync(node.runtime.cniBinDir, binDir, { recursive: true, dereference: true });
  const whereabouts = findForeignPlugin('whereabouts', process.env);
  if ('path' in whereabouts) cpSync(whereabouts.path, join(binDir, 'whereabouts'));
  return binDir;
}

/** A cluster with the chart installed, with its default values. */
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
