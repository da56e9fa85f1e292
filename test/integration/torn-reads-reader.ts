import { readFileSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { parseJsonStream } from '../../src/framework/metadata/document/json-stream.ts';
import { decodeStream, type MetadataDocument, readMetadataFile } from '../../src/framework/metadata/index.ts';

/** Results of reading a file. */
export interface ReadCounts {
  reads: number;
  good: number;
  /** No content, or only blanks. */
  empty: number;
  /** Truncated, or not valid JSON. */
  short: number;
  /** Complete, but of more than one generation. */
  mixed: number;
  /** Number of different generations. */
  generations: number;
}

type Verdict = Exclude<keyof ReadCounts, 'reads' | 'generations'>;

const { path, reader, reads } = workerData as { path: string; reader: 'plain' | 'own'; reads: number };

/** All values of one generation have the same text, so mixed parts are detected. */
function isOfOneGeneration(documents: Pick<MetadataDocument, 'generation' | 'devices'>[]): boolean {
  const values = documents.flatMap(({ devices }) =>
    devices.flatMap(({ attributes = {} }) =>
      Object.entries(attributes).flatMap(([name, { string }]) => (name.startsWith('value') ? [string] : [])),
    ),
  );
  return new Set(values).size <= 1 && new Set(documents.map(({ generation }) => generation)).size === 1;
}

function judge(text: string): { verdict: Verdict; generation?: number } {
  if (text.trim() === '') return { verdict: 'empty' };
  try {
    const documents = parseJsonStream(text).map((object) => decodeStream(JSON.stringify(object)));
    const generation = documents[0]?.generation ?? 0;
    return { verdict: documents.length === 2 && isOfOneGeneration(documents) ? 'good' : 'mixed', generation };
  } catch {
    return { verdict: /}\s*$/.test(text) ? 'mixed' : 'short' };
  }
}

const counts: ReadCounts = { reads, good: 0, empty: 0, short: 0, mixed: 0, generations: 0 };
const seen = new Set<number | undefined>();
for (let read = 0; read < reads; read++) {
  if (reader === 'plain') {
    const { verdict, generation } = judge(readFileSync(path, 'utf8'));
    counts[verdict]++;
    seen.add(generation);
  } else {
    const document = await readMetadataFile(path);
    counts[isOfOneGeneration([document]) ? 'good' : 'mixed']++;
    seen.add(document.generation);
  }
}
counts.generations = seen.size;
parentPort?.postMessage(counts);
