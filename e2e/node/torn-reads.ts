import { once } from 'node:events';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { pino } from 'pino';
import { ClaimMetadata, layouts } from '../../src/framework/metadata/index.ts';
import { buildClaim, buildPod, testDriver } from '../../test/doubles/objects.ts';
import { Bench } from './bench.ts';
import type { ReadCounts } from './torn-reads-reader.ts';

/**
 * Counts the results of reading a file while it is updated, inside a container's mount of it:
 * `node e2e/node/torn-reads.ts [plain reads] [reads through our reader]`. Exits with 1 if a goal is missed.
 */
const plainReads = Number(process.argv[2] ?? 1_000_000);
const ownReads = Number(process.argv[3] ?? 100_000);

interface Writer {
  name: string;
  pauseMs: number;
}

const writers: Writer[] = [
  { name: '10 updates a second', pauseMs: 100 },
  { name: 'a writer that never pauses', pauseMs: 0 },
];

async function main(): Promise<void> {
  await using bench = await Bench.start({ version: '2.1', logger: pino({ level: 'silent' }) });
  await bench.startDriver();
  const pod = buildPod('reader', { resourceClaims: [{ name: 'nic', resourceClaimName: 'busy' }] });
  while (bench.api.objects('ResourceSlice').length === 0) await setTimeout(50);
  const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
  const device = slice?.spec.devices[0]?.name ?? '';
  const claim = buildClaim('busy', { requests: [{ name: 'vf', devices: [device] }], pods: [pod] });
  bench.api.create(claim);
  const sandbox = await bench.startPod(pod);
  const container = await bench.startContainer(sandbox, pod);
  const pid = await bench.pidOf(container);
  // The container's /var/run is a link to /run, which would resolve outside its root here.
  const file = `/run/kubernetes.io/dra-device-attributes/resourceclaims/busy/vf/${testDriver}-metadata.json`;
  const path = `/proc/${pid}/root${file}`;
  const metadata = new ClaimMetadata({
    driver: testDriver,
    dataDir: `${bench.settings.kubeletPluginsDir}/${testDriver}`,
    cdiDir: bench.settings.cdiDir,
    layouts: [layouts.v1, layouts.kep],
  });
  const { namespace, name, uid } = claim.metadata;
  let isMissed = false;
  for (const writer of writers) {
    for (const [reader, reads] of [
      ['plain', plainReads],
      ['own', ownReads],
    ] as const) {
      const counting = count(path, reader, reads);
      let isCounting = true;
      const stop = () => {
        isCounting = false;
      };
      counting.then(stop, stop);
      let generation = 0;
      while (isCounting) {
        const attributes = Object.fromEntries(
          Array.from({ length: 12 }, (_, n) => [`value${n}`, { string: `generation ${generation} `.repeat(2).trim() }]),
        );
        ({ generation } = await metadata.update({ namespace, name, uid }, 'vf', [
          { driver: testDriver, pool: bench.settings.nodeName, name: device, attributes },
        ]));
        // Even without a pause, the reader's message needs a turn of the event loop: an update only waits for the disk.
        await (writer.pauseMs > 0 ? setTimeout(writer.pauseMs) : setImmediate());
      }
      const counts = await counting;
      console.log(JSON.stringify({ writer: writer.name, reader, lastGeneration: generation, ...counts }));
      const { empty, short, mixed } = counts;
      const isMixedAllowed = reader === 'plain' && writer.pauseMs === 0;
      if (empty + (isMixedAllowed ? 0 : mixed + short) > 0) isMissed = true;
    }
  }
  await bench.endPod(pod);
  if (isMissed) {
    console.error(
      'a goal is missed: no empty read ever, cut off or mixed ones only for a plain reader of a writer that never pauses',
    );
    process.exitCode = 1;
  }
}

async function count(path: string, reader: 'plain' | 'own', reads: number): Promise<ReadCounts> {
  const worker = new Worker(new URL('torn-reads-reader.ts', import.meta.url), { workerData: { path, reader, reads } });
  const [counts] = await once(worker, 'message');
  return counts;
}

await main();
