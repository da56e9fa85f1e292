import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { SandboxError } from '../../../../src/driver/model/index.ts';
import { SandboxPhase, type SandboxState, transitions } from '../../../../src/driver/sandbox/phases.ts';
import { turns } from './fake-networks.ts';
import { claim } from './fake-work.ts';
import { openSandbox } from './open-sandbox.ts';

describe('phases of a sandbox', () => {
  const seen = new Set<string>();

  beforeEach(() => {
    const enter = SandboxPhase.prototype.enter;
    vi.spyOn(SandboxPhase.prototype, 'enter').mockImplementation(function (this: SandboxPhase, next) {
      if (next.phase !== this.current) seen.add(`${this.current} → ${next.phase}`);
      enter.call(this, next);
    });
  });

  afterEach(() => vi.restoreAllMocks());

  it('follow the transition table, and the tests cover each of its transitions', async () => {
    const whole = openSandbox([claim('a')]);
    await whole.sandbox.want('ready');
    whole.work.answer = { withdrawn: new SandboxError('vf-left', 'it has left') };
    await expect(whole.sandbox.refresh()).rejects.toThrow('it has left');
    await whole.sandbox.want('gone');

    const cutShort = openSandbox([claim('a')]);
    cutShort.work.hold = new Promise(() => undefined);
    const attaching = cutShort.sandbox.want('ready');
    await turns();
    await Promise.all([attaching, cutShort.sandbox.want('away')]);

    const early = openSandbox([claim('a')]);
    // Its end is reported while the first pass detaches its VFs.
    await Promise.all([early.sandbox.want('away'), early.sandbox.want('gone')]);

    const later = openSandbox([claim('a')]);
    await later.sandbox.want('ready');
    await later.sandbox.want('gone');

    const table = Object.entries(transitions).flatMap(([from, all]) => all.map((to) => `${from} → ${to}`));
    expect([...seen].sort()).toEqual(table.sort());
  });

  it.each<[SandboxState, SandboxState]>([
    [{ phase: 'ready' }, { phase: 'attaching' }],
    [
      { phase: 'gone', end: 'away' },
      { phase: 'detaching', end: 'away' },
    ],
  ])('are never skipped: $0.phase follows only $1.phase', (next, before) => {
    const phase = new SandboxPhase();
    expect(() => phase.enter(next)).toThrow(`a sandbox cannot become ${next.phase} while it is pending`);
    phase.enter(before);
    phase.enter(next);
    expect(phase.current).toBe(next.phase);
  });
});
