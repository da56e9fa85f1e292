import { expect, it } from 'vitest';
import { type MetadataFiles, shareMetadataFiles } from '../../../../src/framework/kubeletplugin/shared-files.ts';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';

it('shareMetadataFiles lets a driver see which claims are prepared while another instance changes files', async () => {
  const claim = { namespace: 'apps', name: 'fast-net', uid: 'uid' };
  const calls: string[] = [];
  const target: Pick<MetadataFiles, 'isNamePrepared' | 'openGate'> = {
    isNamePrepared: async () => true,
    openGate: async () => void calls.push('open'),
  };
  const [locks, clock] = [new KeyedMutex(), new ManualClock()];
  const files = shareMetadataFiles(target as MetadataFiles, locks, clock);
  const other = await locks.acquire('all files');
  const [isPrepared, opened] = [files.isNamePrepared(claim), files.openGate(claim, 's1')];
  clock.advance(1_500);
  await expect(opened).rejects.toMatchObject({ code: 'call-aborted', retriable: true });
  expect([await isPrepared, calls]).toEqual([true, []]);
  other[Symbol.dispose]();
  await files.openGate(claim, 's1');
  expect(calls).toEqual(['open']);
});
