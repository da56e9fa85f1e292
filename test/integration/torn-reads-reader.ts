import { parentPort, workerData } from 'node:worker_threads';
import { readMetadataFile } from '../../src/framework/metadata/index.ts';

/** What many reads of a file have found. */
export interface ReadCounts {
  /** Reads with parts of more than one generation. */
  mixed: number;
  /** Number of different generations. */
  generations: number;
}

const { path, reads } = workerData as { path: string; reads: number };
const counts: ReadCounts = { mixed: 0, generations: 0 };
const seen = new Set<number>();
for (let read = 0; read < reads; read++) {
  const { generation, devices } = await readMetadataFile(path);
  // All values of one generation have the same text.
  const texts = devices.flatMap(({ attributes = {} }) => Object.values(attributes).map(({ string }) => string));
  if (new Set(texts).size > 1) counts.mixed++;
  seen.add(generation);
}
counts.generations = seen.size;
parentPort?.postMessage(counts);
