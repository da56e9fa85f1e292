import { afterAll, beforeAll, describe } from 'vitest';
import { describeBandwidth } from './cases/bandwidth.ts';
import { describeLayouts } from './cases/layouts.ts';
import { describePages } from './cases/pages.ts';
import { describeRelease } from './cases/release.ts';
import { InstalledDriver } from './node/driver.ts';
import { RealNode } from './node/real-node.ts';
import { readPrograms } from './programs.ts';

const programs = readPrograms(process.env);

/** The chart, and the operators' pages. On a separate cluster, since they install and remove the driver. */
describe(`the chart on Kubernetes ${programs.kubernetesVersion}`, () => {
  const stack = new AsyncDisposableStack();
  let node: RealNode;
  let driver: InstalledDriver;

  beforeAll(async () => {
    node = stack.use(await RealNode.start(programs));
    driver = await InstalledDriver.prepare(node, { simulate: '1x4' });
  });
  afterAll(async () => {
    await stack.disposeAsync();
  });

  const get = () => ({ node, driver });
  describeRelease(get);
  describeBandwidth(get);
  describeLayouts(get);
  describePages(get);
});
