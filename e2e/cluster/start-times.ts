/**
 * How long pods take to run on a real cluster, with a VF and without, and how long a pod without one is held up while the
 * driver is killed: `npm run e2e:cluster -- --start-times`. Prints a table in Markdown.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { V1Pod } from '@kubernetes/client-node';
import { explain } from '../../src/errors.ts';
import { Cluster } from './cluster.ts';
import { InstalledDriver } from './node/driver.ts';
import { RealNode } from './node/real-node.ts';
import { testClaim, testPod } from './objects.ts';
import { readPrograms } from './programs.ts';

const rounds = 3;
const counts = [1, 10, 30];

/** Creates pods and waits until all of them run. @returns seconds */
async function timeOf(cluster: Cluster, count: number, withVf: boolean): Promise<number> {
  const names = Array.from({ length: count }, (_, index) => `pod-${index}`);
  const startedAt = performance.now();
  await Promise.all(names.map((name) => create(cluster, name, withVf)));
  await untilRunning(cluster, names);
  return (performance.now() - startedAt) / 1_000;
}

async function create(cluster: Cluster, name: string, withVf: boolean): Promise<void> {
  if (withVf) await cluster.create(testClaim(cluster, name, [{ name: 'vf', config: { interfaceName: 'net1' } }]));
  const claims = withVf ? [{ name: 'nic', resourceClaimName: name }] : [];
  await cluster.create(testPod(cluster, name, { claims, restartPolicy: 'Always' }));
}

async function untilRunning(cluster: Cluster, names: readonly string[]): Promise<void> {
  for (const endsAt = performance.now() + 180_000; ; await sleep(20)) {
    const pods = await cluster.list<V1Pod>('Pod');
    const running = new Set(pods.flatMap(({ metadata, status }) => (isRunning(status) ? [metadata.name] : [])));
    const missing = names.filter((name) => !running.has(name));
    if (missing.length === 0) return;
    if (performance.now() > endsAt) throw new Error(`these pods do not run after 180 s: ${missing.join(', ')}`);
  }
}

function isRunning(status: V1Pod['status']): boolean {
  return status?.containerStatuses?.every(({ state }) => state?.running !== undefined) ?? false;
}

/** Pods without a claim, one after the other, while 30 with one come and the driver is killed. @returns seconds, the worst */
async function holdUp(cluster: Cluster, node: RealNode): Promise<number> {
  const names = Array.from({ length: 30 }, (_, index) => `pod-${index}`);
  await Promise.all(names.map((name) => create(cluster, name, true)));
  const others: number[] = [];
  let isOver = false;
  const watching = (async () => {
    for (let index = 0; !isOver; index++) {
      const startedAt = performance.now();
      await create(cluster, `other-${index}`, false);
      await untilRunning(cluster, [`other-${index}`]);
      others.push((performance.now() - startedAt) / 1_000);
    }
  })();
  await sleep(2_000);
  await node.crash('driver');
  await untilRunning(cluster, names);
  isOver = true;
  await watching;
  return Math.max(...others);
}

async function main(): Promise<void> {
  const programs = readPrograms(process.env);
  await using node = await RealNode.start(programs);
  const driver = await InstalledDriver.install(node, { simulate: '2x40' });
  await using cluster = await Cluster.open(driver.target);
  const rows: string[] = [];
  const measure = async (name: string, run: () => Promise<number>) => {
    const seconds: number[] = [];
    for (let round = 0; round < rounds; round++) {
      seconds.push(await run());
      await cluster.removeAll();
      await sleep(2_000);
    }
    const [median = 0] = seconds.toSorted((a, b) => a - b).slice(Math.floor(rounds / 2));
    rows.push(`| ${name} | ${median.toFixed(2)} | ${seconds.map((each) => each.toFixed(2)).join(', ')} |`);
    console.error(rows.at(-1));
  };
  for (const count of counts) {
    await measure(`${count} without a claim`, () => timeOf(cluster, count, false));
    await measure(`${count} with a VF each`, () => timeOf(cluster, count, true));
  }
  await measure('longest of pods without a claim, driver killed while 30 come', () => holdUp(cluster, node));
  const { kubernetesVersion, runtimeLabel } = programs;
  console.log(`Kubernetes ${kubernetesVersion}, ${runtimeLabel}: seconds until all pods run`);
  console.log(['| pods at once | median | rounds |', '|---|---|---|', ...rows].join('\n'));
}

try {
  await main();
} catch (error) {
  console.error(`start times: ${explain(error)}`);
  process.exitCode = 1;
}
