import { describe, expect, it } from 'vitest';
import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import { ObservedVfs } from '../../../../src/driver/recovery/index.ts';
import { claimKey } from '../../../../src/framework/metadata/index.ts';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { storedAttachment, storedClaim, storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';

const never = new AbortController().signal;
const device = storedDevice({ name: 'vf-1', config: { attach: 'observe' } });
const prepared = storedClaim({
  identity: { namespace: 'default', name: 'fast-net', uid: 'uid' },
  podUids: ['pod'],
  devices: [device],
});

function startBench(claim = prepared, others: StoredClaim[] = []) {
  const state = { claim, isFresh: true, isListed: false, isOnHost: false };
  const clock = new ManualClock();
  const takenBack: string[] = [];
  const logger = new RecordingLogger();
  const locks = new KeyedMutex();
  const vfs = new ObservedVfs({
    store: storedClaims(() => [state.claim, ...others]),
    sandboxes: {
      get isFresh() {
        return state.isFresh;
      },
      hasPod: () => state.isListed,
    },
    attachments: {
      isOnHost: async () => state.isOnHost,
      detachLost: async ({ name }) => {
        if (name === 'vf-stuck') throw new Error('the kernel does not return');
        takenBack.push(name);
      },
    },
    locks,
    clock,
    logger,
  });
  const sweep = async (laterMs = 0) => {
    clock.advance(laterMs);
    await vfs.sweep(never);
    return takenBack;
  };
  return { state, locks, logger, sweep, takenBack };
}

describe('a VF that another component left in a lost sandbox', () => {
  it('is moved back after the time that a starting sandbox needs', async () => {
    const { sweep, logger } = startBench();
    expect(await sweep()).toEqual([]);
    expect(await sweep(239_999)).toEqual([]);
    expect(await sweep(1)).toEqual(['vf-1']);
    expect(logger.lines).toMatchObject([{ level: 'warn', fields: { claim: 'default/fast-net', device: 'vf-1' } }]);
  });

  it('is moved back even if moving back another VF fails', async () => {
    const stuck = { ...device, name: 'vf-stuck', pciAddress: '0000:3b:02.0' };
    const { sweep } = startBench({ ...prepared, devices: [stuck, device] });
    await sweep();
    await expect(sweep(240_000)).rejects.toThrow('the kernel does not return');
    expect(await sweep(-1)).toEqual(['vf-1']);
  });

  it('waits the full time again for its next claim before it is moved back', async () => {
    const { state, sweep } = startBench();
    await sweep();
    state.claim = { ...prepared, identity: { ...prepared.identity, name: 'next', uid: 'next' }, podUids: ['next'] };
    expect(await sweep(239_999)).toEqual([]);
    expect(await sweep(1)).toEqual([]);
    expect(await sweep(240_000)).toEqual(['vf-1']);
  });

  it('is moved back even while other work holds the lock of another claim', async () => {
    const busy = { ...prepared, identity: { ...prepared.identity, name: 'busy', uid: 'busy' } };
    const { sweep, locks, takenBack } = startBench(busy, [prepared]);
    await sweep();
    const lock = await locks.acquire(claimKey(busy.identity));
    const swept = sweep(240_000);
    await expect.poll(() => takenBack).toEqual(['vf-1']);
    lock[Symbol.dispose]();
    await swept;
    expect(takenBack).toEqual(['vf-1', 'vf-1']);
  });

  it('is moved back by the next round at once if the first attempt failed', async () => {
    const stuck = { ...device, name: 'vf-stuck' };
    const { sweep } = startBench({ ...prepared, devices: [stuck] });
    await sweep();
    for (const laterMs of [240_000, 1, 1]) await expect(sweep(laterMs)).rejects.toThrow('the kernel does not return');
  });

  it.each([
    ['the VF is on the host', { isOnHost: true }],
    ['the runtime lists a sandbox of its pod', { isListed: true }],
    ["the runtime's list is outdated", { isFresh: false }],
  ])('stays in place while %s, and for the full waiting time afterwards', async (_, change) => {
    const { state, sweep } = startBench();
    await sweep();
    const before = { ...state };
    Object.assign(state, change);
    await sweep(300_000);
    Object.assign(state, before);
    expect(await sweep(1)).toEqual([]);
    expect(await sweep(240_000)).toEqual(['vf-1']);
  });

  it.each<[string, StoredClaim]>([
    ['is not prepared', { ...prepared, state: 'preparing' }],
    ['lets the driver move the VF', { ...prepared, devices: [{ ...device, config: {} }] }],
    [
      'uses the VF in user space',
      {
        ...prepared,
        devices: [{ ...device, access: { nodes: [], vfio: { device: '/dev/vfio/7', iommuGroup: '7' } } }],
      },
    ],
    [
      'has the VF in a known sandbox',
      {
        ...prepared,
        devices: [{ ...device, attachment: storedAttachment({ podUid: 'pod' }) }],
      },
    ],
  ])('stays in place if its claim %s', async (_, claim) => {
    const { sweep } = startBench(claim);
    await sweep();
    expect(await sweep(300_000)).toEqual([]);
  });
});
