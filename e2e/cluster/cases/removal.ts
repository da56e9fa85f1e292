import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { repository } from '../../../scripts/run-command.ts';
import { chartDir } from '../../release/chart.ts';
import { locateDriverImage } from '../../release/driver-image.ts';
import { valueArguments } from '../../release/helm.ts';
import { downwardApiDir } from '../node/driver.ts';
import { traceInstallation } from '../node/installation-trace.ts';
import { bootIdPath } from '../node/real-node.ts';
import { readCommands } from '../pages/run-page.ts';
import { type ReleaseSite, waitArguments } from './release-site.ts';

const page = 'docs/operators.md';
const manifest = 'deploy/manifests/remove.yaml';
/** The kubelet deletes slices half a minute after their driver has gone. */
const settled = { timeout: 240_000, interval: 2_000 };

/** Has to come before all other cases that install the driver: its node must never have had it. */
export function describeRemoval(get: () => ReleaseSite): void {
  it('a release that is installed, upgraded and removed as docs/operators.md says leaves neither objects nor files', {
    timeout: 900_000,
  }, async () => {
    const site = get();
    const { node, driver } = site;
    // Runtime and kubelet create directories of their own with the first pod.
    const plain = { containers: [{ name: 'main', image: driver.target.consumerImage, command: ['sleep', '3600'] }] };
    expect(node.kubectl('create', 'namespace', 'netdra')).toContain('created');
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'plain' }, spec: plain };
    // The namespace gets its service account a moment later.
    await expect.poll(() => site.apply('plain', pod), settled).toMatch(/created|unchanged/);
    expect(site.kubectl('wait', 'pod/plain', '--for=condition=Ready', '--timeout=60s')).toContain('condition met');
    node.kubectl('delete', 'namespace', 'netdra');
    // The only file of a test that is where the driver has its own.
    rmSync(dirname(bootIdPath), { recursive: true });
    const before = traceInstallation(node);

    node.registry.push(locateDriverImage(cacheFolder(process.env)), 'netdra:e2e-next');
    const values = valueArguments(driver.values);
    site.helm('install', 'netdra', chartDir, '--create-namespace', ...values, ...waitArguments);
    site.holdReady('holder', { interfaceName: 'net1', addresses: ['192.0.2.7/24'] });
    site.helm('upgrade', 'netdra', chartDir, '--reuse-values', '--set=image.tag=e2e-next', ...waitArguments);
    site.release('holder');
    const installed = traceInstallation(node);
    for (const added of ['DaemonSet netdra/netdra', 'ClusterRole /netdra', '.dev/state.db', '.dev/e2e-next.json']) {
      expect(installed.filter((line) => line.endsWith(added) && !before.includes(line))).toHaveLength(1);
    }

    const commands = readCommands(page).map(({ text }) => text);
    const removing = commands.slice(commands.findIndex((text) => text.startsWith('helm uninstall')));
    expect(removing).toHaveLength(5);
    for (const command of removing) {
      const [program, ...args] = command.replace(manifest, writeManifest(site)).split(' ');
      if (program === 'helm') site.helm(...args, ...waitArguments);
      else expect(node.kubectl(...args)).not.toMatch(/error/i);
    }
    const differences = () => {
      const after = traceInstallation(node);
      const only = (lines: string[], others: string[]) => lines.filter((line) => !others.includes(line));
      return { left: only(after, before), gone: only(before, after) };
    };
    await expect.poll(differences, settled).toEqual({ left: [], gone: [] });
  });
}

/** With the image and the directories of this cluster. @returns the path */
function writeManifest({ node, driver }: ReleaseSite): string {
  const { repository: image, tag } = driver.values.image as Record<string, string>;
  const text = readFileSync(join(repository, manifest), 'utf8');
  const path = join(node.dir, 'remove.yaml');
  writeFileSync(path, text.replaceAll('localhost/netdra:0.1.0', `${image}:${tag}`).replace('/etc/dra', downwardApiDir));
  return path;
}
