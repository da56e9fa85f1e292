import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Store, StoredRecords } from '../../../../src/driver/state/index.ts';
import { readGate } from '../../../../src/framework/metadata/gate/gate.ts';
import { inspectClaim, RecordFiles } from '../../../../src/framework/metadata/index.ts';
import { Bench } from '../../framework/metadata/bench.ts';
import { claim, driver, recordOf, samples } from '../../framework/metadata/samples.ts';

const sample = samples.kernel as NonNullable<typeof samples.kernel>;
const record = recordOf(sample);
const devices = sample.content.document?.devices ?? [];
const [request = ''] = Object.keys(record.requests);

describe('records of claims in the store', () => {
  let bench: Bench;
  let storePath: string;
  beforeEach(() => {
    bench = new Bench();
    storePath = join(bench.path, 'state/state.db');
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

  it('survive a restart, and end with their claims', async () => {
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

  it('leave a directory for the gate where nothing else is in it: netdra-gate waits only in one that is there', async () => {
    using first = start();
    const gate = { program: '/opt/netdra-gate', timeoutSeconds: 100 };
    const metadata = bench.start({ records: first.records, enabled: false, gate });
    await metadata.prepare(record, new Map());
    expect(existsSync(dirname(recordFile()))).toBe(true);
    await metadata.unprepare(claim);
    expect(existsSync(dirname(recordFile()))).toBe(false);
  });

  it('are found without their directory, and then removed', async () => {
    using first = start();
    await first.metadata.prepare(record, new Map());
    first.records.write('default_gone', first.records.read('default_fast-net') ?? '');
    expect(first.metadata.dirs()).toEqual(['default_fast-net', 'default_gone']);
    first.metadata.removeDir('default_gone');
    expect(first.records.names()).toEqual(['default_fast-net']);
  });

  it('keep the sandbox that another instance has just served when an earlier one ends, which waits for no lock', async () => {
    using first = start();
    using second = start();
    const gate = { program: '/opt/netdra-gate', timeoutSeconds: 100 };
    const [metadata, other] = [first, second].map(({ records }) => bench.start({ records, gate }));
    const served = () => readGate(bench.dataDir, claim);
    await metadata?.prepare(record, new Map());
    await metadata?.openGate(claim, 's1', new Map([[request, devices]]));
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

  describe('that a preview of 0.1 kept in files', () => {
    beforeEach(async () => {
      const before = bench.start();
      await before.prepare(record, new Map());
      await before.update(claim, request, devices);
    });

    it('move to the store when they are read, and generations go on', async () => {
      expect(existsSync(recordFile())).toBe(true);
      {
        using first = start();
        expect(first.metadata.isRecorded(claim)).toBe(true);
        expect(existsSync(recordFile())).toBe(false);
      }
      using second = start();
      await second.metadata.withdraw(claim);
      expect(await second.metadata.update(claim, request, devices)).toMatchObject({ generation: 2 });
    });

    it('stay in their files until the store has them', async () => {
      {
        using first = start();
        using other = new DatabaseSync(storePath);
        other.exec("CREATE TRIGGER full BEFORE INSERT ON records BEGIN SELECT raise(ABORT, 'disk is full'); END");
        expect(() => first.metadata.read(claim, request)).toThrow('cannot be used');
        other.exec('DROP TRIGGER full');
      }
      using second = start();
      expect(second.metadata.read(claim, request)?.devices).toEqual(devices);
    });

    it('stay where they are when a tool reads them, also from a store that is not migrated', async () => {
      mkdirSync(dirname(storePath), { recursive: true });
      using database = new DatabaseSync(storePath);
      database.exec('CREATE TABLE claims (uid TEXT); PRAGMA user_version = 3');
      using tool = start({ readOnly: true });
      expect((await inspectClaim(driver, bench, claim, tool.records))?.claim).toEqual(claim);
      expect([tool.records.names(), existsSync(recordFile())]).toEqual([[], true]);
    });

    it('are not hidden by an empty store when they are damaged', async () => {
      writeFileSync(recordFile(), '{');
      using first = start();
      expect(() => first.metadata.read(claim, request)).toThrow(/is not JSON/);
      await first.metadata.prepare(record, new Map());
      expect(new RecordFiles(bench.dataDir).read('default_fast-net')).toBeUndefined();
      expect((await first.metadata.update(claim, request, devices)).generation).toBeGreaterThan(1);
    });
  });
});
