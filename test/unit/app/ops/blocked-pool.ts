/**
 * Serves probes in a process of its own and uses up the thread pool: `node blocked-pool.ts FIFO`. Prints the port, and after a
 * line on its standard input opens the FIFO once for each thread of the pool, which blocks until it has a writer.
 */
import { open } from 'node:fs/promises';
import { Metrics, Readiness, serveHttp } from '../../../../src/app/ops/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';

/** Threads of libuv's pool, unless UV_THREADPOOL_SIZE is set. */
const poolThreads = 4;

const metrics = new Metrics({ driver: 'sriov.example', version: '1.2.3', metadataEnabled: false });
const server = await serveHttp({ metrics, readiness: new Readiness(), address: '127.0.0.1:0', clock: systemClock });
process.stdout.write(`${server.port}\n`);
process.stdin.once('data', () => {
  for (let thread = 0; thread < poolThreads; thread++) void open(process.argv[2] ?? '', 'r');
  process.stdout.write('blocked\n');
});
