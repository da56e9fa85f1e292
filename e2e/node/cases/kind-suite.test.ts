import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { OpenCluster } from '../../cluster/describe-cluster.ts';
import { parseSettings } from '../../kind/settings.ts';
import { runSuite } from '../../kind/suite.ts';
import { consumerImage } from '../cluster/consumer-image.ts';
import { startNodeCluster } from '../cluster/node-cluster.ts';

/** What `npm run e2e:kind -- --existing` does on a cluster that is there, from its arguments to its exit code. */
describe('npm run e2e:kind -- --existing, on a cluster on containerd 1.7', () => {
  // Vitest tells its workers much that another one must not hear.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(VITEST|TEST$|NODE_OPTIONS)/.test(name)),
  );
  let cluster: OpenCluster;
  let options: string[];

  beforeAll(async () => {
    cluster = await startNodeCluster('1.7');
    const { kubeconfig, driverNamespace, paths } = cluster.target;
    const values = join(dirname(kubeconfig), 'values.yaml');
    const folders = { kubeletPluginsDirectoryPath: paths.kubeletPlugins, cdiDirectoryPath: paths.cdi };
    writeFileSync(values, JSON.stringify({ kubeletPlugin: { simulate: '8', ...folders } }));
    options = ['--values', values, '--driver-namespace', driverNamespace, '--consumer-image', consumerImage];
  });
  afterAll(async () => {
    await cluster?.close?.();
  });

  async function run(kubeconfig: string, output?: 'ignore'): Promise<boolean> {
    const argv = ['--existing', '--no-install', '--kubeconfig', kubeconfig, ...options];
    return await runSuite(parseSettings(argv, env), {
      ...{ env, print: () => undefined },
      ...(output === undefined ? {} : { output }),
    });
  }

  it('passes all cases', { timeout: 240_000 }, async () => {
    expect(await run(cluster.target.kubeconfig)).toBe(true);
  });

  it('fails where there is no cluster', async () => {
    expect(await run('/nowhere/kubeconfig', 'ignore')).toBe(false);
  });
});
