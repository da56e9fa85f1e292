import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { Store, type StoredDevice } from '../../../src/driver/index.ts';
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
    updater: { updateRequestMetadata: async () => generation },
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
      ['what was written is not told', { claim: facts.claim, err }],
    ]);
  });
});
