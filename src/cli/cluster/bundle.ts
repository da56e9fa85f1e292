import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { DeviceClass } from '../../framework/kube/index.ts';
import { formatExactJson } from '../../framework/metadata/document/json-stream.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import { readClaims } from './claims.ts';
import { type DriverPod, type DriverPodsOptions, defaultDriverNamespace, readDriverPods } from './driver-pods.ts';
import type { Cluster } from './open-cluster.ts';
import { redactObject, redactText } from './redact.ts';
import { readStatus } from './status.ts';

/** Number of nodes whose tools run at the same time. */
const maxParallel = 4;
/** Limits for one log, in lines and in characters, both counted from its end. */
const logLines = 20_000;
const logLength = 4_000_000;

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
  /** Missing files, as text with the reasons; also in `missing.txt`. */
  missing: string[];
}

/** Adds a file to a bundle. If the content cannot be read, lists the file as missing. */
type Write<Content> = (path: string, read: () => Promise<Content>) => Promise<void>;

/**
 * Collects the data needed to find a fault: the driver's objects, and for each node the output of its tools and its log.
 * Removes text that looks like a secret. Lists data that cannot be read as missing, and goes on.
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
  const named = new Set<string>();
  await writeObject('claims.json', async () => {
    const claims = await readClaims(cluster, { driverName });
    for (const name of claims.flatMap(({ classes }) => classes)) named.add(name);
    return claims;
  });
  await writeObject('resourceslices.json', () => cluster.listResources('resourceslices', { fieldSelector }));
  await writeObject('nodenetworkdevices.json', () => cluster.listViews());
  await writeObject('networkdevicepolicies.json', () => cluster.listPolicies());
  await writeObject('deviceclasses.json', async () => {
    const classes = await cluster.listResources<DeviceClass>('deviceclasses');
    // A class without the driver's name can select its devices, too.
    return classes.filter(
      ({ metadata: { name = '' }, spec }) => named.has(name) || JSON.stringify(spec).includes(driverName),
    );
  });
  await writeObject('pods.json', () =>
    cluster.listPods(options.driverNamespace ?? defaultDriverNamespace, { labelSelector: options.selector }),
  );
  for (let index = 0; index < nodes.length; index += maxParallel) {
    const some = nodes.slice(index, index + maxParallel);
    await Promise.all(
      some.map((node) => collectNode(cluster, node, pods.get(node) as DriverPod, { write, writeObject, view })),
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
  { write, writeObject, view }: { write: Write<string>; writeObject: Write<unknown>; view: BundleView },
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
  const writeLog = async (name: string, query: Record<string, string> = {}) => {
    const path = join('nodes', node, name);
    await write(path, async () => {
      // With `limitBytes`, the API would keep the oldest of these lines.
      const log = await cluster.readLog(pod, { tailLines: `${logLines}`, ...query });
      const { text, lines, isCut } = endOf(log);
      if (isCut) view.missing.push(`${path}: only its last ${lines} lines`);
      return redactText(text);
    });
  };
  await writeLog('driver.log');
  // Only a container that was restarted has a previous log.
  await writeLog('driver-previous.log', { previous: 'true' });
}

/** Returns the last whole lines of a log within the limits, and whether earlier lines may exist. */
function endOf(log: string): { text: string; lines: number; isCut: boolean } {
  const excess = log.length - logLength;
  const text = excess <= 0 ? log : log.slice(log.indexOf('\n', excess - 1) + 1);
  const lines = text.match(/\n/g)?.length ?? 0;
  return { text, lines, isCut: excess > 0 || lines >= logLines };
}
