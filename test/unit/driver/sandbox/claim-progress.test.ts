import { describe, expect, it } from 'vitest';
import { ClaimProgress } from '../../../../src/driver/sandbox/claim-progress.ts';
import type { StoredClaim } from '../../../../src/driver/state/index.ts';

const identity = (name: string) => ({ namespace: 'apps', name, uid: name });
const claim = (name: string): StoredClaim => ({
  ...{ identity: identity(name), podUids: ['pod'], state: 'prepared', devices: [] },
});

describe('ClaimProgress', () => {
  it.each([
    ['new', () => undefined, { retry: true, change: true }],
    ['ready', (progress: ClaimProgress) => progress.served('a', 'ready'), { retry: false, change: true }],
    ['ready for now', (progress: ClaimProgress) => progress.served('a', 'tentative'), { retry: true, change: true }],
    ['failed', (progress: ClaimProgress) => progress.failed(identity('a'), 'no'), { retry: true, change: false }],
  ])('knows whether a claim that is %s is due for a retry, and when the pod changes', (_, begin, due) => {
    const progress = new ClaimProgress();
    begin(progress);
    expect(progress.isDue('a', { readsAgain: false, tries: true })).toBe(due.retry);
    expect(progress.isDue('a', { readsAgain: true, tries: false })).toBe(due.change);
  });

  it('counts the failures of each claim in a row, and says whether a reason is new', () => {
    const progress = new ClaimProgress();
    const fail = (name: string, message: string) => progress.failed(identity(name), new Error(message));
    expect([fail('a', 'busy'), fail('a', 'busy'), fail('a', 'gone'), fail('b', 'busy')]).toMatchObject([
      { claim: 'apps/a', isRepeated: false },
      { claim: 'apps/a', isRepeated: true },
      { claim: 'apps/a', isRepeated: false },
      { claim: 'apps/b', isRepeated: false },
    ]);
    expect([progress.failureOf('a'), progress.failureOf('b')]).toMatchObject([{ attempts: 3 }, { attempts: 1 }]);
    progress.served('a', 'ready');
    expect([progress.failureOf('a'), progress.failures.length]).toEqual([undefined, 1]);
    progress.withdrawn('a');
    fail('a', 'busy');
    expect(progress.failureOf('a')).toMatchObject({ attempts: 1 });
  });

  it('has no reason why a claim is not ready that could not be read again: it still is', () => {
    const progress = new ClaimProgress();
    progress.served('a', 'ready');
    progress.failed(identity('a'), new Error('no answer'));
    expect([progress.isReady('a'), progress.failureOf('a'), progress.failures.length]).toEqual([true, undefined, 1]);
    expect(progress.isDue('a', { readsAgain: false, tries: true })).toBe(true);
  });

  it('forgets claims that the pod no longer has', () => {
    const progress = new ClaimProgress();
    progress.served('a', 'tentative');
    progress.failed(identity('b'), new Error('busy'));
    progress.forgetAllBut([claim('c')]);
    expect([progress.isReady('a'), progress.isAnyReady, progress.isAnyTentative, progress.failures]).toEqual([
      false,
      false,
      false,
      [],
    ]);
  });
});
