/**
 * Publishes the devices of many nodes with the driver's own publisher, each node with its own client and connections.
 * Commands and answers are those of e2e/go/slice-publisher:
 *
 *   node publish.ts KUBECONFIG DRIVER NODE...
 */
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { KubeClient, ResourceApi } from '../../../src/framework/kube/index.ts';
import { loadKubeConfig } from '../../../src/framework/kube/kube-config.ts';
import { createSliceApi, type Device, SlicePublisher } from '../../../src/framework/resourceslice/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';

const [kubeconfig = '', driver = '', ...nodeNames] = process.argv.slice(2);
let devices: Device[] | undefined;

interface Instance extends AsyncDisposable {
  /** Publishes the devices, if there are some. */
  publish(): void;
}

function openInstance(nodeName: string): Instance {
  const stack = new AsyncDisposableStack();
  const clock = systemClock;
  const client = stack.use(new KubeClient(loadKubeConfig(kubeconfig), { clock, userAgent: 'netdra' }));
  const place = { driver, nodeName };
  const api = createSliceApi(client, new ResourceApi(client), place);
  const onError = (error: unknown) => console.error(`${nodeName}: ${error}`);
  const publisher = stack.use(new SlicePublisher(api, { ...place, clock, logger: new RecordingLogger(), onError }));
  return {
    publish() {
      if (devices !== undefined) publisher.publish({ pools: { [nodeName]: { devices } } });
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

const instances = new Map(nodeNames.map((name) => [name, openInstance(name)]));

/** Like a DaemonSet with `maxSurge: 1`. */
async function replaceAll(): Promise<void> {
  for (const [name, before] of instances) {
    const next = openInstance(name);
    next.publish();
    instances.set(name, next);
    await before[Symbol.asyncDispose]();
  }
}

for await (const line of createInterface(process.stdin)) {
  const [command, path = ''] = line.split(' ');
  if (command === 'publish') {
    devices = JSON.parse(readFileSync(path, 'utf8')) as Device[];
    for (const instance of instances.values()) instance.publish();
  } else if (command === 'replace') {
    await replaceAll();
  } else {
    throw new Error(`no command "${command}"`);
  }
  console.log('done');
}
process.exit();
