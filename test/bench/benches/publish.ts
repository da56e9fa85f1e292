import { Agent, request } from 'node:http';
import { createSliceApi, type Device, SlicePublisher } from '../../../src/framework/resourceslice/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { ApiServer } from '../../doubles/api-server.ts';
import { openKube } from '../../doubles/kube.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { buildNode, testDriver, testNode } from '../../doubles/objects.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { interleave, timed } from '../interleave.ts';
import { bound, row } from '../result.ts';
import { type Distribution, summarize } from '../stats.ts';

const deviceCounts = { full: [128, 256, 512], smoke: [128, 512] } as const;

/** ResourceSlices of many devices. */
export const publishBench: Bench = {
  name: 'publish',
  async run(options) {
    const results: Measured[] = [];
    for (const count of deviceCounts[options.effort]) {
      options.progress(`publish: ${count} devices`);
      results.push(await measure(count, options));
    }
    const last = results.at(-1)!;
    return {
      name: 'publish',
      about:
        'ResourceSlices of one node, from publish to the last answer of the API server: publisher, reference and API server in one process. The reference posts the same slices, as text that is there already.',
      rows: results.flatMap(({ devices, ours, bare, again, cpu, writes, writesAgain }) => [
        row(`${devices} devices`, 'ms', ours, { what: 'bare POSTs', ...bare }),
        row(`${devices} devices, nothing changed`, 'ms', again),
        row(`${devices} devices, CPU of the process`, 'ms', cpu),
        row(`${devices} devices, writes`, 'writes', writes),
        row(`${devices} devices, writes when nothing changed`, 'writes', writesAgain),
      ]),
      bounds: [
        bound(`writes for ${last.devices} devices`, last.writes.median, Math.ceil(last.devices / 128), 'writes'),
        bound('writes when nothing changed', last.writesAgain.median, 0, 'writes'),
      ],
      plots: [
        {
          name: 'publish',
          title: 'Publishing a node, by its devices (median)',
          xLabel: 'devices',
          yLabel: 'ms',
          series: [
            { name: 'all slices new', points: results.map(({ devices, ours }) => [devices, ours.median]) },
            { name: 'nothing changed', points: results.map(({ devices, again }) => [devices, again.median]) },
            { name: 'reference: bare POSTs', points: results.map(({ devices, bare }) => [devices, bare.median]) },
          ],
        },
      ],
    };
  },
};

interface Measured {
  devices: number;
  ours: Distribution;
  bare: Distribution;
  again: Distribution;
  cpu: Distribution;
  writes: Distribution;
  writesAgain: Distribution;
}

async function measure(count: number, { effort }: BenchOptions): Promise<Measured> {
  await using api = await ApiServer.start();
  api.create(buildNode());
  using kube = openKube(api);
  using agent = disposableAgent();
  const devices = buildDevices(count);
  const again: number[] = [];
  const cpu: number[] = [];
  const writes: number[] = [];
  const writesAgain: number[] = [];
  let texts: string[] = [];
  const ours = async () => {
    clear(api);
    const cpuBefore = process.cpuUsage();
    const before = writesOf(api);
    let synced = Promise.withResolvers<void>();
    await using publisher = new SlicePublisher(
      createSliceApi(kube.client, kube.resources, { driver: testDriver, nodeName: testNode }),
      {
        driver: testDriver,
        nodeName: testNode,
        clock: systemClock,
        logger: new RecordingLogger(),
        onError: (error) => synced.reject(error),
        onSynced: () => synced.resolve(),
      },
    );
    const publish = async () => {
      synced = Promise.withResolvers<void>();
      publisher.publish({ pools: { [testNode]: { devices } } });
      await synced.promise;
    };
    const ms = await timed(publish);
    const { user, system } = process.cpuUsage(cpuBefore);
    cpu.push((user + system) / 1_000);
    writes.push(writesOf(api) - before);
    again.push(await timed(publish));
    writesAgain.push(writesOf(api) - before - writes.at(-1)!);
    texts = api
      .objects<{ metadata: object }>('ResourceSlice')
      .map((slice) => JSON.stringify({ ...slice, metadata: nameOnly(slice.metadata) }));
    return ms;
  };
  const bare = async () => {
    clear(api);
    return await timed(() => Promise.all(texts.map((text) => post(api.url, agent.agent, text))));
  };
  const rounds =
    effort === 'full' ? { rounds: 8, perRound: 3, warmUpRounds: 2 } : { rounds: 1, perRound: 2, warmUpRounds: 0 };
  const [ourMs = [], bareMs = []] = await interleave(
    [
      { name: 'ours', run: ours },
      { name: 'bare', run: bare },
    ],
    rounds,
  );
  const counted = (values: number[]) => summarize(values.slice(-ourMs.length));
  return {
    devices: count,
    ours: summarize(ourMs),
    bare: summarize(bareMs),
    again: counted(again),
    cpu: counted(cpu),
    writes: counted(writes),
    writesAgain: counted(writesAgain),
  };
}

function disposableAgent() {
  const agent = new Agent({ keepAlive: true });
  return { agent, [Symbol.dispose]: () => agent.destroy() };
}

function clear(api: ApiServer): void {
  for (const { metadata } of api.objects('ResourceSlice')) api.delete('ResourceSlice', metadata.name);
}

function writesOf(api: ApiServer): number {
  return api.log.filter(({ method }) => method !== 'GET').length;
}

function nameOnly(metadata: { name?: string; generateName?: string; ownerReferences?: object }): object {
  const { name, ownerReferences } = metadata;
  return { name, ownerReferences };
}

function post(url: string, agent: Agent, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
    const sent = request(
      `${url}/apis/resource.k8s.io/v1/resourceslices`,
      { method: 'POST', agent, headers },
      (answer) => {
        if (answer.statusCode !== 201) reject(new Error(`POST of a slice: ${answer.statusCode}`));
        answer.resume().on('end', resolve).on('error', reject);
      },
    );
    sent.on('error', reject).end(text);
  });
}

/** With as many attributes as VFs have. */
function buildDevices(count: number): Device[] {
  return Array.from({ length: count }, (_, index) => {
    const function_ = `${(index >> 3).toString(16).padStart(2, '0')}.${index & 7}`;
    return {
      name: `0000-3b-${function_.replace('.', '-')}`,
      attributes: {
        'resource.kubernetes.io/pciBusID': { string: `0000:3b:${function_}` },
        'resource.kubernetes.io/pcieRoot': { string: 'pci0000:3a' },
        vendor: { string: '8086' },
        deviceId: { string: '1889' },
        driver: { string: 'iavf' },
        interfaceName: { string: `ens1f0v${index}` },
        hardwareAddress: {
          string: `02:00:00:00:${(index >> 8).toString(16).padStart(2, '0')}:${(index & 255).toString(16).padStart(2, '0')}`,
        },
        mtu: { int: 1500 },
        numaNode: { int: 0 },
        vfIndex: { int: index },
        pfName: { string: 'ens1f0' },
        pfPciAddress: { string: '0000:3b:00.0' },
        linkUp: { bool: true },
      },
    };
  });
}
