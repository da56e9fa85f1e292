import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { OrphanedFiles } from '../../../../src/driver/recovery/index.ts';
import { Store, StoredRecords } from '../../../../src/driver/state/index.ts';
import { CdiSpecs, type ClaimMetadata } from '../../../../src/framework/metadata/index.ts';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { storedClaim } from '../../../doubles/stored-claims.ts';
import { Bench } from '../../framework/metadata/bench.ts';

const never = new AbortController().signal;

const identity = (name: string) => {
  return {
    namespace: 'default',
    name,
    uid: `${Buffer.from(name).toString('hex').padEnd(8, '0').slice(0, 8)}-1111-4222-8333-444455556666`,
  };
};
/** Names as another driver has them; and files without the UID of a claim. */
const ofOthers = {
  cdi: ['other.example_metadata_6e696300-1111-4222-8333-444455556666_vf.json', `${testDriver}_metadata_vf.json`],
  attributes: [`${testDriver}-x-6e696300-1111-4222-8333-444455556666-vf.json`, 'readme'],
};

describe('OrphanedFiles', () => {
  let bench: Bench;
  let store: Store;
  let metadata: ClaimMetadata;
  let orphans: OrphanedFiles;
  let specs: CdiSpecs;
  let logger: RecordingLogger;
  const locks = new KeyedMutex();
  const top = () => join(bench.dataDir, 'dra-device-metadata');

  beforeEach(() => {
    bench = new Bench();
    logger = new RecordingLogger();
    store = new Store(join(bench.path, 'state.db'));
    metadata = bench.start({
      layouts: ['v1', 'attributes-json', 'downward-api'],
      records: new StoredRecords({ store, dataDir: bench.dataDir }),
    });
    specs = new CdiSpecs({ dir: bench.cdiDir, driver: testDriver, class: 'device' });
    orphans = new OrphanedFiles({ store, metadata, specs: [specs], locks, logger });
  });
  afterEach(() => {
    store[Symbol.dispose]();
    bench[Symbol.dispose]();
  });

  /** Lays a claim down, with a file. */
  const layDown = async (name: string) => {
    const requests = { vf: { name: 'vf', devices: [{ pool: 'node-1', name: 'dev-1' }] } };
    await metadata.prepare({ claim: identity(name), podUid: `pod-${name}`, requests }, new Map());
    await metadata.update(identity(name), 'vf', [{ driver: testDriver, pool: 'node-1', name: 'dev-1' }]);
  };
  const put = (name: string, state: 'preparing' | 'prepared' | 'unpreparing' = 'prepared') =>
    store.putClaim(storedClaim({ identity: identity(name), state }));

  it('removes directories and records of claims that are not in the store, and finishes an interrupted removal', async () => {
    for (const name of ['kept', 'gone']) await layDown(name);
    put('kept');
    mkdirSync(join(top(), '.removed-x/vf'), { recursive: true });
    writeFileSync(join(top(), '.removed-x/vf/metadata.json'), '{}');
    await orphans.sweep(never);
    expect([readdirSync(top()), store.records.names()]).toEqual([['default_kept'], ['default_kept']]);
    const { length } = logger.messages('warn');
    await orphans.sweep(never);
    expect(logger.messages('warn')).toHaveLength(length);
  });

  it('removes files of unknown claims outside of claim directories, and no other files', async () => {
    const { cdiDir, attributesDir, downwardApiDir } = bench;
    const list = () =>
      [cdiDir, attributesDir, downwardApiDir].map((path) => readdirSync(path, { recursive: true }).sort());
    await layDown('kept');
    specs.write(identity('kept').uid, 'dev-1', { env: ['A=b'] });
    put('kept');
    for (const name of ofOthers.cdi) writeFileSync(join(cdiDir, name), '{}');
    for (const name of ofOthers.attributes) writeFileSync(join(attributesDir, name), '{}');
    mkdirSync(join(downwardApiDir, 'pod-nic'), { recursive: true });
    const path = (name: string) => join(downwardApiDir, 'pod-nic', name);
    writeFileSync(path('damaged.vf.json'), '{');
    const foreign = { metadata: { uid: identity('nic').uid }, requests: [{ devices: [{ driver: 'other.example' }] }] };
    writeFileSync(path('foreign.vf.json'), JSON.stringify(foreign));
    const before = list();
    await layDown('nic');
    specs.write(identity('nic').uid, 'dev-1', { env: ['A=b'] });
    writeFileSync(join(cdiDir, `.${testDriver}_device_${identity('nic').uid}_dev-2.json.tmp`), '{');
    expect(list()).not.toEqual(before);
    // As after the loss of the store: neither a claim nor a record.
    store.records.delete('default_nic');
    await orphans.sweep(never);
    expect(list()).toEqual(before);
    expect(logger.messages('warn').filter((message) => message.includes('file of a claim'))).toHaveLength(5);
  });

  it('keeps a directory if a claim of the same name is prepared while OrphanedFiles waits for the lock', async () => {
    await layDown('nic');
    const held = await locks.acquire('default_nic');
    const swept = orphans.sweep(never);
    put('nic');
    held[Symbol.dispose]();
    await swept;
    expect([readdirSync(top()), store.records.names()]).toEqual([['default_nic'], ['default_nic']]);
  });

  it.each(['preparing', 'prepared', 'unpreparing'] as const)(
    'keeps the files of a claim that is %s, whatever its record says',
    async (state) => {
      await layDown('nic');
      put('nic', state);
      const file = join(top(), 'default_nic/vf/metadata.json');
      const text = readFileSync(file, 'utf8');
      for (const damage of [() => store.records.write('default_nic', '{'), () => store.records.delete('default_nic')]) {
        damage();
        await orphans.sweep(never);
        expect(readFileSync(file, 'utf8')).toBe(text);
      }
    },
  );

  it("does not wait for a directory's lock when the driver stops", async () => {
    await layDown('nic');
    using _held = await locks.acquire('default_nic');
    const stop = new AbortController();
    const swept = orphans.sweep(stop.signal);
    stop.abort(new Error('the driver stops'));
    await expect(swept).rejects.toThrow('the driver stops');
    expect(readdirSync(top())).toEqual(['default_nic']);
  });

  it('removes nothing while the store cannot be read', async () => {
    await layDown('nic');
    store[Symbol.dispose]();
    await expect(orphans.sweep(never)).rejects.toMatchObject({ code: 'store-unusable' });
    expect(existsSync(join(top(), 'default_nic/vf/metadata.json'))).toBe(true);
  });

  it.runIf(process.getuid?.() !== 0)(
    'reports each file that it cannot remove once, and removes all others',
    async () => {
      for (const name of ['a', 'b']) await layDown(name);
      chmodSync(join(top(), 'default_a'), 0o500);
      for (let n = 0; n < 2; n++) await orphans.sweep(never);
      expect(readdirSync(top())).toEqual(['default_a']);
      expect(logger.messages('warn').filter((message) => message.startsWith('cannot remove files'))).toHaveLength(1);
      // Nor could the end of this test remove it.
      chmodSync(join(top(), 'default_a'), 0o700);
    },
  );
});
