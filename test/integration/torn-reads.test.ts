import { once } from 'node:events';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { ClaimMetadata, layouts } from '../../src/framework/metadata/index.ts';
import { tempDir } from '../doubles/temp-dir.ts';
import type { ReadCounts } from './torn-reads-reader.ts';

it('a reader never finds a metadata file empty or torn while the file is being rewritten', async () => {
  using dir = tempDir();
  const claim = { namespace: 'default', name: 'busy', uid: 'u' };
  const metadata = new ClaimMetadata({
    enabled: true,
    driver: 'd.example',
    dataDir: dir.path,
    cdiDir: join(dir.path, 'cdi'),
    layouts: [layouts.v1],
  });
  await metadata.prepare({ claim, requests: { vf: { name: 'vf', devices: [{ pool: 'p', name: 'd' }] } } }, new Map());
  // The file gets longer and shorter.
  const update = (string: string, count: number) => {
    const attributes = Object.fromEntries(Array.from({ length: count }, (_, n) => [`value${n}`, { string }]));
    return metadata.update(claim, 'vf', [{ driver: 'd.example', pool: 'p', name: 'd', attributes }]);
  };
  let { generation } = await update('first', 1);
  const path = join(dir.path, 'dra-device-metadata/default_busy/vf/metadata.json');
  const script = new URL('./torn-reads-reader.ts', import.meta.url);
  const worker = new Worker(script, { workerData: { path, reads: 3_000 } });
  let isDone = false;
  const done = once(worker, 'message').finally(() => {
    isDone = true;
  });
  while (!isDone) {
    ({ generation } = await update(`value ${generation}`, 1 + (generation % 9)));
    // An update waits for nothing but the disk: the worker's message needs a turn of its own.
    await setImmediate();
  }
  const [counts] = (await done) as [ReadCounts];
  expect(counts.mixed).toBe(0);
  expect(counts.generations).toBeGreaterThan(20);
});
