import { afterAll, beforeAll, describe } from 'vitest';
import { describePages } from './cases/pages.ts';
import { describeRelease } from './cases/release.ts';
import { ReleaseSite } from './cases/release-site.ts';
import { describeRemoval } from './cases/removal.ts';
import { InstalledDriver } from './node/driver.ts';
import { RealNode } from './node/real-node.ts';
import { readPrograms } from './programs.ts';

const programs = readPrograms(process.env);

/** The chart, and the operators' pages. On a separate cluster, since they install and remove the driver. */
describe(`the chart on Kubernetes ${programs.kubernetesVersion}`, () => {
  const stack = new AsyncDisposableStack();
  let site: ReleaseSite;

  beforeAll(async () => {
    const node = stack.use(await RealNode.start({ ...programs, syncFrequency: '3s' }));
    site = new ReleaseSite(node, await InstalledDriver.prepare(node, { simulate: '1x4' }));
  });
  afterAll(async () => {
    await stack.disposeAsync();
  });

  const get = () => site;
  describeRemoval(get);
  describeRelease(get);
  describePages(get);
});
