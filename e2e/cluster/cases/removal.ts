import { linkSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { repository } from '../../../scripts/run-command.ts';
import { chartDir } from '../../release/chart.ts';
import { locateDriverImage } from '../../release/driver-image.ts';
import { valueArguments } from '../../release/helm.ts';
import { downwardApiDir, driverNamespace } from '../node/driver.ts';
import { traceInstallation } from '../node/installation-trace.ts';
import { kubeletDir } from '../node/kubelet.ts';
import { bootIdPath, type RealNode } from '../node/real-node.ts';
import { readCommands } from '../pages/run-page.ts';
import { type ReleaseSite, waitArguments } from './release-site.ts';

const page = 'docs/operators.md';
const manifest = 'deploy/manifests/remove.yaml';
const driverDir = dirname(bootIdPath);
/** Kubelets delete slices half a minute after their driver has gone, and restart failed containers after up to five minutes. */
const settled = { timeout: 400_000, interval: 2_000 };
/** Lines of `traceInstallation` for the directories that stay, since others may use them as well. */
const shared = [
  join(kubeletDir, 'seccomp'),
  downwardApiDir,
  '/run/dra-device-attributes',
  '/run/k8s.cni.cncf.io',
  '/run/k8s.cni.cncf.io/devinfo',
  '/run/k8s.cni.cncf.io/devinfo/dp',
].map((path) => `40755 ${path}`);
/** Endings of lines that an installation adds, one line each. */
const added = [
  'DaemonSet netdra/netdra',
  'ClusterRole /netdra',
  '.dev/state.db',
  '.dev/e2e-next.json',
  '.dev/tools.sock',
];
/** The commands that remove an installation, in the order of the page, and what they print. */
const removing: [RegExp, printed: string][] = [
  [/^helm uninstall /, 'release "netdra" uninstalled'],
  // The case has applied it while the driver ran: its pods remove the files when they are restarted.
  [/^kubectl apply /, 'daemonset.apps/netdra-remove unchanged'],
  [/^kubectl rollout status /, 'successfully rolled out'],
  [/^kubectl delete .*remove\.yaml$/, 'daemonset.apps "netdra-remove" deleted'],
  [/^kubectl delete namespace /, 'namespace "netdra" deleted'],
  [/^kubectl delete crd /, '"networkdevicepolicies.netdra.dev" deleted'],
];

/** Has to come before all other cases that install the driver: its node must never have had it. */
export function describeRemoval(get: () => ReleaseSite): void {
  it('a release that is installed, upgraded and removed as docs/operators.md says leaves only empty directories', {
    timeout: 900_000,
  }, async ({ onTestFinished }) => {
    const site = get();
    const { node } = site;
    onTestFinished(async () => {
      // First the pod: without the driver it would not end.
      site.release('holder');
      site.helm('uninstall', 'netdra', '--ignore-not-found', ...waitArguments);
      await removeNamespace(node);
    }, 600_000);
    await startPlainPod(site);
    await removeNamespace(node);
    // The only file of a test that is where the driver has its own.
    rmSync(driverDir, { recursive: true });
    const before = traceInstallation(node);
    const additions = () => traceInstallation(node).filter((line) => !before.includes(line));
    const expectInstalled = () =>
      expect(additions()).toEqual(expect.arrayContaining(added.map((ending) => expect.stringMatching(`${ending}$`))));
    installAndUpgrade(site);
    expectInstalled();

    const path = writeManifest(site);
    expect(site.kubectl('apply', '--filename', path)).toContain('created');
    const log = () => site.kubectl('logs', 'daemonset/netdra-remove', '--container=remove');
    await expect.poll(log, settled).toContain(`a driver answers on ${driverDir}/`);
    expectInstalled();
    // Like the socket of a killed driver, it stays without a listener.
    linkSync(join(driverDir, 'tools.sock'), join(driverDir, 'dra-killed.sock'));

    await runPage(site, path);
    const left = shared.filter((line) => !before.includes(line)).sort();
    const gone = () => {
      const after = traceInstallation(node);
      return before.filter((line) => !after.includes(line));
    };
    await expect.poll(() => ({ left: additions(), gone: gone() }), settled).toEqual({ left, gone: [] });
  });
}

/** Runtime and kubelet create directories of their own with the first pod. */
async function startPlainPod(site: ReleaseSite): Promise<void> {
  const main = { name: 'main', image: site.driver.target.consumerImage, command: ['sleep', '3600'] };
  const spec = { containers: [main], terminationGracePeriodSeconds: 1 };
  expect(site.node.kubectl('create', 'namespace', driverNamespace)).toContain('created');
  const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'plain' }, spec };
  // The namespace gets its service account a moment later.
  await expect.poll(() => site.apply('plain', pod), settled).toMatch(/created|unchanged/);
  const wait = ['wait', 'pod/plain', '--for=condition=Ready', '--timeout=50s'];
  await expect.poll(() => site.kubectl(...wait), settled).toContain('condition met');
}

function installAndUpgrade(site: ReleaseSite): void {
  site.node.registry.push(locateDriverImage(cacheFolder(process.env)), 'netdra:e2e-next');
  const values = valueArguments(site.driver.values);
  site.helm('install', 'netdra', chartDir, '--create-namespace', ...values, ...waitArguments);
  site.holdReady('holder', { interfaceName: 'net1', addresses: ['192.0.2.7/24'] });
  site.helm('upgrade', 'netdra', chartDir, '--reuse-values', '--set=image.tag=e2e-next', ...waitArguments);
  site.release('holder');
}

/** @param path of the manifest for this cluster */
async function runPage(site: ReleaseSite, path: string): Promise<void> {
  const commands = readCommands(page).map(({ text }) => text);
  const ofRemoval = commands.slice(commands.findIndex((text) => text.startsWith('helm uninstall')));
  expect(ofRemoval).toEqual(removing.map(([pattern]) => expect.stringMatching(pattern)));
  for (const command of ofRemoval) {
    const printed = removing.find(([pattern]) => pattern.test(command))?.[1];
    const [program, ...args] = command.replace(manifest, path).split(' ');
    if (program === 'helm') expect(site.helm(...args)).toContain(printed);
    // Repeated: kubectl is ended after a minute.
    else await expect.poll(() => site.node.kubectl(...args), settled).toContain(printed);
  }
}

async function removeNamespace(node: RealNode): Promise<void> {
  node.kubectl('delete', 'namespace', driverNamespace, '--ignore-not-found', '--wait=false');
  await vi.waitFor(() => expect(node.kubectl('get', 'namespace', driverNamespace)).toContain('NotFound'), settled);
}

/** With the image of this cluster. @returns the path */
function writeManifest({ node, driver }: ReleaseSite): string {
  const { repository: image, tag } = driver.values.image as Record<string, string>;
  const text = readFileSync(join(repository, manifest), 'utf8');
  const path = join(node.dir, 'remove.yaml');
  writeFileSync(path, text.replaceAll('localhost/netdra:0.1.0', `${image}:${tag}`));
  return path;
}
