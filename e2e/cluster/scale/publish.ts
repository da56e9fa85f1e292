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
let devices: Device[] = [];

function openPublisher(nodeName: string): AsyncDisposable & { publish(): void } {
  const stack = new AsyncDisposableStack();
  const client = stack.use(new KubeClient(loadKubeConfig(kubeconfig), { clock: systemClock, userAgent: 'netdra' }));
  const place = { driver, nodeName };
  const api = createSliceApi(client, new ResourceApi(client), place);
  const onError = (error: Error) => console.error(`${nodeName}: ${error.message}`);
  const options = { ...place, clock: systemClock, logger: new RecordingLogger(), onError };
  const publisher = stack.use(new SlicePublisher(api, options));
  return {
    publish: () => publisher.publish({ pools: { [nodeName]: { devices } } }),
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

const publishers = new Map(nodeNames.map((name) => [name, openPublisher(name)]));

/** Like a DaemonSet with `maxSurge: 1`. */
async function replaceAll(): Promise<void> {
  for (const [name, before] of publishers) {
    const next = openPublisher(name);
    next.publish();
    publishers.set(name, next);
    await before[Symbol.asyncDispose]();
  }
}

for await (const line of createInterface(process.stdin)) {
  const [command, path = ''] = line.split(' ');
  if (command === 'publish') {
    devices = JSON.parse(readFileSync(path, 'utf8')) as Device[];
    for (const publisher of publishers.values()) publisher.publish();
  } else if (command === 'replace') {
    await replaceAll();
  } else {
    throw new Error(`no command "${command}"`);
  }
  console.log('done');
}
process.exit();
