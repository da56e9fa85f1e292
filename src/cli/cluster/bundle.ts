import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { formatExactJson } from '../../framework/metadata/document/json-stream.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import { readClaims } from './claims.ts';
import { type DriverPod, type DriverPodsOptions, defaultDriverNamespace, readDriverPods } from './driver-pods.ts';
import type { Cluster } from './open-cluster.ts';
import { redactObject, redactText } from './redact.ts';
import { readStatus } from './status.ts';

/** Number of nodes that are asked at a time. */
const maxParallel = 4;
/** Limit for one log: the newest bytes of a busy driver's day. */
const logBytes = 4_000_000;

export interface BundleOptions extends DriverPodsOptions {
  /** Output directory. */
  out: string;
  /** Names of nodes; empty: all nodes with a pod of the driver. */
  nodes: readonly string[];
}

export interface BundleView {
  out: string;
  /** Paths of the written files, below `out`. */
  files: string[];
  /** What is missing and why, as text; also in `missing.txt`. */
  missing: string[];
}

/** Adds a file to a bundle, or lists it as missing if it cannot be read. */
type Write<Content> = (path: string, read: () => Promise<Content>) => Promise<void>;

/**
 * Collects what is needed to find a fault: the driver's objects, and for each node the output of its tools and its log.
 * Removes what looks like a secret. Lists what cannot be read and collects the rest.
 * @throws NetdraError `bundle-exists`, `no-driver-pod`, `list-forbidden`; KubeError
 */
export async function makeBundle(cluster: Cluster, options: BundleOptions): Promise<BundleView> {
  const { driverName, out } = options;
  const pods = await readDriverPods(cluster, options);
  const nodes = options.nodes.length === 0 ? [...pods.keys()].sort() : options.nodes;
  const unknown = nodes.find((node) => !pods.has(node));
  if (unknown !== undefined) throw new NetdraError('no-driver-pod', `no pod of ${driverName} is on node ${unknown}`);
  makeFolder(out);
  const view: BundleView = { out, files: [], missing: [] };
  const write: Write<string> = async (path, read) => {
    try {
      const text = await read();
      mkdirSync(dirname(join(out, path)), { recursive: true });
      writeFileSync(join(out, path), text, { mode: 0o600 });
      view.files.push(path);
    } catch (error) {
      view.missing.push(`${path}: ${explain(error)}`);
    }
  };
  const writeObject: Write<unknown> = (path, read) =>
    write(path, async () => `${formatExactJson(redactObject(await read()))}\n`);
  const fieldSelector = `spec.driver=${driverName}`;
  await writeObject('status.json', () => readStatus(cluster, options));
  await writeObject('claims.json', () => readClaims(cluster, { driverName }));
  await writeObject('resourceslices.json', () => cluster.listResources('resourceslices', { fieldSelector }));
  await writeObject('nodenetworkdevices.json', () => cluster.listViews());
  await writeObject('networkdevicepolicies.json', () => cluster.listPolicies());
  await writeObject('deviceclasses.json', () => cluster.listResources('deviceclasses'));
  await writeObject('pods.json', () =>
    cluster.listPods(options.driverNamespace ?? defaultDriverNamespace, { labelSelector: options.selector }),
  );
  for (let index = 0; index < nodes.length; index += maxParallel) {
    const some = nodes.slice(index, index + maxParallel);
    await Promise.all(
      some.map((node) => collectNode(cluster, node, pods.get(node) as DriverPod, { write, writeObject })),
    );
  }
  if (view.missing.length > 0) await write('missing.txt', async () => `${view.missing.map(redactText).join('\n')}\n`);
  return { ...view, files: view.files.sort() };
}

function makeFolder(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (cause) {
    const hint = 'name another folder with --out';
    throw new NetdraError('bundle-exists', `cannot make the folder ${path}`, { cause, path, hint });
  }
}

async function collectNode(
  cluster: Cluster,
  node: string,
  pod: DriverPod,
  { write, writeObject }: { write: Write<string>; writeObject: Write<unknown> },
): Promise<void> {
  const run = async (tool: string, ...args: string[]) => {
    const { stdout, stderr } = await cluster.exec(pod, ['netdra', tool, ...args]);
    if (stdout === '') throw new NetdraError('tool-failed', stderr.trim());
    return stdout;
  };
  for (const tool of ['doctor', 'inventory', 'claims']) {
    await writeObject(join('nodes', node, `${tool}.json`), async () => JSON.parse(await run(tool, '--output=json')));
  }
  await write(join('nodes', node, 'driver-debug.log'), async () => redactText(await run('log')));
  const log = (query: Record<string, string>) => async () =>
    redactText(await cluster.readLog(pod, { limitBytes: `${logBytes}`, ...query }));
  await write(join('nodes', node, 'driver.log'), log({}));
  // Only a restarted container has a previous log.
  await write(join('nodes', node, 'driver-previous.log'), log({ previous: 'true' }));
}
