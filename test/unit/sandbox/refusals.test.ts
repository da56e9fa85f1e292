import { describe, expect, it } from 'vitest';
import { Refusals } from '../../../src/sandbox/index.ts';

describe('Refusals', () => {
  it('keeps the sandbox of a pod that was refused three times in a row', () => {
    const refusals = new Refusals();
    const answers = Array.from({ length: 5 }, () => refusals.answer('pod', 'reject'));
    // After one that was kept the count begins anew: the pod got a new sandbox for another reason.
    expect(answers).toEqual(['reject', 'reject', 'reject', 'gate', 'reject']);
  });

  it('counts each pod by itself, and forgets it when it was served', () => {
    const refusals = new Refusals();
    for (let n = 0; n < 3; n++) refusals.answer('a', 'reject');
    refusals.forget('a');
    expect([refusals.answer('a', 'reject'), refusals.answer('b', 'reject')]).toEqual(['reject', 'reject']);
  });

  it('never refuses where it is told not to', () => {
    expect(new Refusals().answer('pod', 'gate')).toBe('gate');
  });

  it('remembers a bounded number of pods, the latest ones', () => {
    const refusals = new Refusals();
    for (let n = 0; n < 3; n++) refusals.answer('old', 'reject');
    for (let n = 0; n < 1_000; n++) refusals.answer(`pod-${n}`, 'reject');
    expect(refusals.answer('old', 'reject')).toBe('reject');
  });
});
