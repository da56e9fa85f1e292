import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Store, StoredRecords } from '../../../../src/driver/state/index.ts';
import { readGate } from '../../../../src/framework/metadata/gate/gate.ts';
import { Bench } from '../../framework/metadata/bench.ts';
import { claim, recordOf, samples } from '../../framework/metadata/samples.ts';

const sample = samples.kernel as NonNullable<typeof samples.kernel>;
const record = recordOf(sample);
const devices = sample.content.document?.devices ?? [];
const [request = ''] = Object.keys(record.requests);

describe('claim records in the store', () => {
  let bench: Bench;
  let storePath: string;
  beforeEach(() => {
    bench = new Bench();
    storePath = join(bench.path, 'state.db');
  });
  afterEach(() => bench[Symbol.dispose]());

  const recordFile = () => join(bench.dataDir, 'dra-device-metadata/default_fast-net/claim.json');
  /** A driver with its store, until the test disposes of it. */
  function start(options: { readOnly?: boolean } = {}) {
    const store = new Store(storePath, options);
    const records = new StoredRecords({ store, dataDir: bench.dataDir });
    const metadata = bench.start({ records });
    return { store, records, metadata, [Symbol.dispose]: () => store[Symbol.dispose]() };
  }

  it('survive a restart, and are deleted with their claims', async () => {
    {
      using first = start();
      await first.metadata.prepare(record, new Map());
      expect(await first.metadata.update(claim, request, devices)).toMatchObject({ generation: 1 });
    }
    using second = start();
    expect(second.records.names()).toEqual(['default_fast-net']);
    expect((await second.metadata.read(claim, request))?.devices).toEqual(devices);
    await second.metadata.withdraw(claim);
    expect(await second.metadata.update(claim, request, devices)).toMatchObject({ generation: 2 });
    expect(existsSync(recordFile())).toBe(false);
    await second.metadata.unprepare(claim);
    expect([second.records.names(), bench.files(bench.dataDir)]).toEqual([[], []]);
  });

  it('keep a directory for the gate, since netdra-gate waits only if the directory exists', async () => {
    using first = start();
    const gate = { program: '/opt/netdra-gate', timeoutSeconds: 100 };
    const metadata = bench.start({ records: first.records, enabled: false, gate });
    await metadata.prepare(record, new Map());
    expect(existsSync(dirname(recordFile()))).toBe(true);
    await metadata.unprepare(claim);
    expect(existsSync(dirname(recordFile()))).toBe(false);
  });

  it("are removed if their claim's directory is missing", async () => {
    using first = start();
    await first.metadata.prepare(record, new Map());
    first.records.write('default_gone', first.records.read('default_fast-net') ?? '');
    expect(first.metadata.dirs()).toEqual(['default_fast-net', 'default_gone']);
    first.metadata.removeDir('default_gone');
    expect(first.records.names()).toEqual(['default_fast-net']);
  });

  it('keep the sandbox that another driver instance has just served when an earlier sandbox ends', async () => {
    using first = start();
    using second = start();
    const gate = { program: '/opt/netdra-gate', timeoutSeconds: 100 };
    const [metadata, other] = [first, second].map(({ records }) => bench.start({ records, gate }));
    const served = () => readGate(bench.dataDir, claim);
    await metadata?.prepare(record, new Map());
    await metadata?.update(claim, request, devices, 's1');
    const together = first.records.together.bind(first.records);
    first.records.together = (task) => {
      void other?.openGate(claim, 's2');
      together(task);
    };
    await metadata?.endGate(claim, 's1');
    expect(served()).toEqual({ state: 'served', sandboxId: 's2' });
    // It closes a gate that is open for another sandbox than the record says.
    await other?.restore();
    expect(served()).toEqual({ state: 'served', sandboxId: 's2' });
  });
});
