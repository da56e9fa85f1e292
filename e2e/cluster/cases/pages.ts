import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makePackageProgram } from '../../../deploy/image/image-files.ts';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { createCertificate } from '../../../test/doubles/certificate.ts';
import { writeConsumerArchive } from '../../release/consumer-image.ts';
import { locateDriverImage } from '../../release/driver-image.ts';
import { locateHelm } from '../../release/helm.ts';
import { locatePrometheus } from '../../release/prometheus.ts';
import { downwardApiDir } from '../node/driver.ts';
import { nodeName } from '../node/real-node.ts';
import { pagePlans, type Site } from '../pages/plans.ts';
import {
  findStalePatterns,
  openShell,
  readCommands,
  runInShell,
  runPageCommand,
  type Shell,
} from '../pages/run-page.ts';
import { kubernetesVersions, readPrograms } from '../programs.ts';
import type { ReleaseSite } from './release-site.ts';

const cacheDir = cacheFolder(process.env);
const programs = readPrograms(process.env);

/** Runs every command on the operators' pages, verbatim, with the real programs. Once: on the newest Kubernetes. */
export function describePages(get: () => ReleaseSite): void {
  const isNewest = programs.kubernetesVersion === kubernetesVersions[0];
  describe.runIf(isNewest)('the operator pages', () => {
    let shell: Shell;
    let site: Site;

    beforeAll(async () => {
      const { node } = get();
      const image = locateDriverImage(cacheDir);
      // The chart's own version, those that the pages upgrade to, and the version under test.
      for (const tag of ['0.1.0', '0.1.1', 'e2e']) node.registry.push(image, `netdra:${tag}`);
      const archive = join(node.dir, 'consumer.tar');
      writeConsumerArchive(archive);
      node.registry.push(archive, 'netdra-consumer:e2e');
      const kubeconfig = node.controlPlane.adminKubeconfig;
      const kubectl = join(programs.kubernetes, 'kubectl');
      const promtool = locatePrometheus('promtool', cacheDir, process.env);
      const bin = join(node.dir, 'package-bin');
      await makePackageProgram(join(bin, 'netdra.mjs'));
      const plugin = { 'kubectl-netdra': join(bin, 'kubectl-netdra.mjs') };
      shell = openShell(node.dir, { kubectl, ...plugin, promtool, helm: locateHelm(cacheDir, 'helm-4') }, kubeconfig);
      const [values, holder] = [join(node.dir, 'values.yaml'), join(node.dir, 'my-pod.yaml')];
      const directories = { downwardApiDirectoryPath: downwardApiDir };
      writeFileSync(values, JSON.stringify({ kubeletPlugin: { simulate: '8', minReadySeconds: 0, ...directories } }));
      writeFileSync(holder, JSON.stringify(get().holder('my-pod', { claim: 'my-claim' })));
      const { certificate, key } = createCertificate('netdra-metrics.netdra.svc');
      writeFileSync(join(shell.dir, 'tls.crt'), certificate);
      writeFileSync(join(shell.dir, 'tls.key'), key);
      site = { registry: node.registry.address, kubeconfig, node: nodeName, values, holder };
    });

    describe.each(pagePlans)('the commands of $page', (plan) => {
      beforeAll(async () => {
        for (const command of plan.setUp ?? []) await runInShell(command, shell, site);
      });
      afterAll(async () => {
        for (const command of plan.tearDown ?? []) await runInShell(command, shell, site);
      });

      it('match every pattern in the test plan of this page', () => {
        expect(findStalePatterns(plan)).toEqual([]);
      });

      it.for(readCommands(plan.page))('$line: $text', async (command, { skip }) => {
        const reason = await runPageCommand(plan, command, shell, site);
        skip(reason !== undefined, reason);
      });
    });
  });
}
