import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import { Store, type StoredDevice } from '../../../src/driver/index.ts';
import type { MetadataUpdater } from '../../../src/kubeletplugin/index.ts';
import { ClaimMetadata, layouts } from '../../../src/metadata/index.ts';
import { Metrics, observeUpdater } from '../../../src/ops/index.ts';
import { MetadataWriter, type VfMover } from '../../../src/sandbox/index.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { testDriver } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const identity = { uid: 'u', namespace: 'apps', name: 'fast-net' };
const device: StoredDevice = { pciAddress: '0000:3b:02.1', pool: 'n', name: 'dev-1', request: 'vf', config: {} };
const state = { interfaceName: 'net1', hardwareAddress: '02:00:00:00:00:02', ips: ['192.0.2.7/24'], tentative: false };

/** What is logged of a claim whose files get this generation. @param onWritten told of it */
async function logOf(generation: number, onWritten = () => {}): Promise<unknown[]> {
  using dir = tempDir();
  using store = new Store(join(dir.path, 'state.db'));
  store.putClaim({ identity, podUids: ['p'], state: 'prepared', devices: [device] });
  const logger = new RecordingLogger();
  const writer = new MetadataWriter({
    ...{ driver: testDriver, store, logger, attributesOf: () => ({}), onStep: () => undefined },
    mover: {} as VfMover,
    updater: { updateRequestMetadata: async () => ({ generation, isWritten: generation > 0 }) },
    onWritten,
  });
  await writer.write(identity, [{ request: 'vf', device, state }]);
  expect(logger.lines).toEqual([]);
  // The runtime has its answer by then.
  await setImmediate();
  expect(store.claim('u')?.devices[0]?.networkData).toMatchObject({ ips: state.ips });
  return logger.lines.map(({ message, fields }) => [message, fields]);
}

describe('MetadataWriter', () => {
  const facts = { claim: 'apps/fast-net', request: 'vf', devices: ['dev-1'] };

  it('logs which generation containers find', async () => {
    expect(await logOf(3)).toEqual([['metadata written', { ...facts, generation: 3 }]]);
  });

  it('does not say that files were written when metadata is off', async () => {
    expect(await logOf(0)).toEqual([['devices ready; metadata files are off', facts]]);
  });

  it('does not fail when what it wrote cannot be told', async () => {
    const err = new Error('the store is gone');
    const lines = await logOf(3, () => {
      throw err;
    });
    expect(lines).toEqual([
      ['metadata written', { ...facts, generation: 3 }],
      ['claim status not updated', { claim: facts.claim, err }],
    ]);
  });

  it('logs and counts only what it has written, also after a restart', async () => {
    using dir = tempDir();
    using store = new Store(join(dir.path, 'state.db'));
    store.putClaim({ identity, podUids: ['p'], state: 'prepared', devices: [device] });
    const logger = new RecordingLogger();
    const metrics = new Metrics({ driver: testDriver, version: '1', metadataEnabled: true });
    const start = () => {
      const dirs = { dataDir: join(dir.path, 'data'), cdiDir: join(dir.path, 'cdi') };
      const metadata = new ClaimMetadata({ driver: testDriver, ...dirs, layouts: [layouts.v1, layouts.kep] });
      const updater: MetadataUpdater = { updateRequestMetadata: (...update) => metadata.update(...update) };
      const writer = new MetadataWriter({
        ...{ driver: testDriver, store, logger, attributesOf: () => ({}), onStep: () => undefined },
        mover: {} as VfMover,
        updater: observeUpdater(updater, metrics, systemClock),
      });
      return { metadata, writer };
    };
    const { metadata, writer } = start();
    const requests = { vf: { name: 'vf', devices: [{ pool: device.pool, name: device.name }] } };
    await metadata.prepare({ claim: identity, requests }, new Map());
    // The hook, the first look after it, the end of duplicate address detection and one more event.
    for (let look = 0; look < 4; look++) await writer.write(identity, [{ request: 'vf', device, state }]);
    const changed = { ...state, ips: ['192.0.2.8/24'] };
    await writer.write(identity, [{ request: 'vf', device, state: changed }]);
    await start().writer.write(identity, [{ request: 'vf', device, state: changed }]);
    await setImmediate();
    expect(logger.lines.map(({ message, fields }) => [message, fields.generation])).toEqual([
      ['metadata written', 1],
      ['metadata written', 2],
    ]);
    expect((await metrics.render()).text).toContain('dra_metadata_writes_total{driver_name="sriov.netdra.dev"} 2\n');
  });
});
