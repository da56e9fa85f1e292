/**
 * Publishes the devices of many nodes with the driver's own publisher, and shows them with its own writer, each node with its
 * own client and connections. Commands and answers are those of e2e/go/slice-publisher, `view`, and `policies`, from which on
 * NetworkDevicePolicies are followed:
 *
 *   node publish.ts KUBECONFIG DRIVER NODE...
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { longestRescanMs } from '../../../src/driver/devices/scan-schedule.ts';
import { type NodeView, NodeViewWriter } from '../../../src/driver/nodeview/index.ts';
import { PolicyObjects } from '../../../src/driver/policy/index.ts';
import { KubeClient, ResourceApi } from '../../../src/framework/kube/index.ts';
import { loadKubeConfig } from '../../../src/framework/kube/kube-config.ts';
import { createSliceApi, type Device, SlicePublisher } from '../../../src/framework/resourceslice/index.ts';
import { repeat, systemClock } from '../../../src/lib/clock.ts';
import { NetdraError } from '../../../src/lib/errors.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';

/** As often as the driver looks. */
const policyPollMs = 2_000;
const [kubeconfig = '', driver = '', ...nodeNames] = process.argv.slice(2);
let devices: Device[] | undefined;
let view: NodeView | undefined;
let isFollowing = false;
const policyDir = mkdtempSync(join(tmpdir(), 'policies-'));

interface Instance extends AsyncDisposable {
  /** Publishes the devices, if there are some. */
  publish(): void;
  /** Shows the node, if there is a view. */
  show(): void;
  /** Looks at the policies, once that has begun. */
  follow(): Promise<void>;
}

/** A policy that all nodes refuse. */
const refused = 'example.com/refused';

function openInstance(nodeName: string): Instance {
  const stack = new AsyncDisposableStack();
  const clock = systemClock;
  const client = stack.use(new KubeClient(loadKubeConfig(kubeconfig), { clock, userAgent: 'netdra' }));
  const place = { driver, nodeName };
  const api = createSliceApi(client, new ResourceApi(client), place);
  const onError = (error: unknown) => console.error(`${nodeName}: ${error}`);
  const common = { clock, logger: new RecordingLogger(), onError };
  const publisher = stack.use(new SlicePublisher(api, { ...place, ...common }));
  const writer = stack.use(
    new NodeViewWriter(client, {
      ...{ driver, node: nodeName, ...common, now: () => new Date(), random: Math.random },
      nodeUid: (signal) => api.nodeUid(signal),
      read: () => view!,
    }),
  );
  let policies: PolicyObjects | undefined;
  return {
    async follow() {
      if (!isFollowing) return;
      const statePath = join(policyDir, `${nodeName}.json`);
      const own = { kube: client, driver, node: nodeName, statePath, random: Math.random };
      policies ??= stack.use(new PolicyObjects({ ...common, ...own }));
      await policies.follow((policy) => {
        if (policy?.resourceName === refused)
          throw new NetdraError('policy-refused', 'the policy does not suit the node');
      });
    },
    publish() {
      if (devices !== undefined) publisher.publish({ pools: { [nodeName]: { devices } } });
    },
    show() {
      if (view !== undefined) writer.note();
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

const instances = new Map(nodeNames.map((name) => [name, openInstance(name)]));
const showAll = () => {
  for (const instance of instances.values()) instance.show();
};

/** Like a DaemonSet with `maxSurge: 1`. */
async function replaceAll(): Promise<void> {
  for (const [name, before] of instances) {
    const next = openInstance(name);
    next.publish();
    next.show();
    await next.follow().catch(() => undefined);
    instances.set(name, next);
    await before[Symbol.asyncDispose]();
  }
}

// As the driver after each scan of a node where nothing happens.
void repeat(systemClock, longestRescanMs, new AbortController().signal, showAll);

void repeat(systemClock, policyPollMs, new AbortController().signal, () => {
  for (const [name, instance] of instances) {
    instance.follow().catch((error: NetdraError) => {
      // A node that has no answer of the API server yet.
      if (!error.retriable) console.error(`${name}: ${error}`);
    });
  }
});

for await (const line of createInterface(process.stdin)) {
  const [command, path = ''] = line.split(' ');
  if (command === 'publish') {
    devices = JSON.parse(readFileSync(path, 'utf8')) as Device[];
    for (const instance of instances.values()) instance.publish();
  } else if (command === 'view') {
    view = JSON.parse(readFileSync(path, 'utf8')) as NodeView;
    showAll();
  } else if (command === 'policies') {
    isFollowing = true;
    await Promise.allSettled([...instances.values()].map((instance) => instance.follow()));
  } else if (command === 'replace') {
    await replaceAll();
  } else {
    throw new Error(`no command "${command}"`);
  }
  console.log('done');
}
rmSync(policyDir, { recursive: true });
process.exit();
