import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeImageFiles } from '../../../deploy/image/image-files.ts';
import { consumerImage, importConsumerImage } from '../../node/cluster/consumer-image.ts';
import { driverImage, makeDriverArchive } from '../../node/driver-image.ts';
import { importArchive } from '../../node/import-archive.ts';
import { CommandError, run } from '../../node/packages/run.ts';
import type { ClusterTarget } from '../target.ts';
import { nodePaths, type RealNode } from './real-node.ts';

export const driverNamespace = 'netdra';
const chart = fileURLToPath(new URL('../../../deploy/helm/netdra', import.meta.url));

export interface DriverOptions {
  /** The program `helm`. */
  helm: string;
  /** How many simulated VFs, as `kubeletPlugin.simulate` takes it. */
  simulate: string;
}

/** Installs the driver by its chart and waits until it is ready. @returns what tests need to know of the cluster */
export async function installDriver(node: RealNode, options: DriverOptions): Promise<ClusterTarget> {
  await importImages(node);
  const [repository, tag] = driverImage.split(/:(?=[^:]*$)/) as [string, string];
  const set = {
    'image.repository': repository,
    'image.tag': tag,
    'image.pullPolicy': 'Never',
    'kubeletPlugin.simulate': options.simulate,
  };
  const strings = Object.entries(set).flatMap(([key, value]) => ['--set-string', `${key}=${value}`]);
  helm(node, options.helm, 'install', 'netdra', chart, '--create-namespace', ...strings, '--wait', '--timeout', '2m');
  return {
    kubeconfig: node.controlPlane.adminKubeconfig,
    driver: 'sriov.netdra.dev',
    driverNamespace,
    consumerImage,
    classes: { kernel: 'netdra-kernel', dpdk: 'netdra-dpdk' },
    simulated: true,
    paths: { kubeletPlugins: nodePaths.kubeletPlugins, cdi: nodePaths.cdi },
    admissionPolicies: true,
    keepFailed: false,
    oldestKubernetes: '1.34',
  };
}

/** Runs Helm on the release's namespace. @throws CommandError with what it wrote, and what the driver's pods say */
export function helm(node: RealNode, program: string, ...args: string[]): string {
  const kubeconfig = ['--kubeconfig', node.controlPlane.adminKubeconfig, '--namespace', driverNamespace];
  const home = join(node.dir, 'helm');
  mkdirSync(home, { recursive: true });
  const env = { ...process.env, HELM_CACHE_HOME: home, HELM_CONFIG_HOME: home, HELM_DATA_HOME: home };
  try {
    return run(program, [...args, ...kubeconfig], { env, timeoutMs: 180_000 });
  } catch (cause) {
    throw new CommandError('helm-failed', `helm ${args[0]} failed:\n${describeDriver(node)}`, { cause });
  }
}

function describeDriver(node: RealNode): string {
  const calls = [
    ['get', 'pods', '--output', 'wide'],
    ['get', 'events'],
    ['logs', 'daemonset/netdra', '--tail=20'],
  ];
  return calls.map((args) => node.kubectl(...args, '--namespace', driverNamespace)).join('\n');
}

async function importImages({ containerd, dir }: RealNode): Promise<void> {
  const work = mkdtempSync(join(dir, 'image-'));
  try {
    const files = join(work, 'files');
    await makeImageFiles({ outDir: files, architecture: 'amd64' });
    const archive = join(work, 'image.tar');
    writeFileSync(archive, makeDriverArchive(files));
    await importArchive(containerd, archive, [driverImage]);
    await importConsumerImage(containerd);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
