import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it as plainIt } from 'vitest';
import { ConditionHistory } from '../../../../src/driver/devices/condition-history.ts';
import { Store } from '../../../../src/driver/state/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

/** A link of a PF, the history that sees it, and the time. */
function bench(path: string) {
  const seconds = (count: number) => 1_000 * count;
  let nowMs = seconds(1_000_000);
  const logger = new RecordingLogger();
  const open = () => {
    const store = new Store(path);
    return { store, history: new ConditionHistory({ store, now: () => new Date(nowMs), logger }) };
  };
  let { store, history } = open();
  const pciAddress = '0000:3b:00.0';
  return {
    logger,
    get store() {
      return store;
    },
    /** @returns what is in force, if it is another condition than before */
    see(isPresent: boolean | undefined, subjects?: string[]) {
      const reading = { condition: 'no-carrier' as const, kind: 'PF' as const, pciAddress, interfaceName: 'ens1f0' };
      const readings = isPresent === undefined ? [] : [{ ...reading, isPresent }];
      const isOther = history.observe(readings, subjects && new Set(subjects));
      return isOther ? this.active() : undefined;
    },
    active: () => history.active.map(({ condition, sinceMs }) => `${condition} ${sinceMs / 1_000 - 1_000_000}`),
    pass: (count: number) => {
      nowMs += seconds(count);
    },
    restart() {
      store[Symbol.dispose]();
      ({ store, history } = open());
    },
    [Symbol.dispose]: () => store[Symbol.dispose](),
  };
}
const it = (name: string, test: (link: ReturnType<typeof bench>, path: string) => void) =>
  plainIt(name, () => {
    using dir = tempDir();
    const path = join(dir.path, 'state.db');
    using link = bench(path);
    test(link, path);
  });

describe('ConditionHistory', () => {
  it('reports a condition when first seen, and ends the condition ten seconds after its cause', (link) => {
    expect(link.see(false)).toBeUndefined();
    expect(link.see(true)).toEqual(['no-carrier 0']);
    link.pass(100);
    for (const seen of [true, undefined, false]) expect(link.see(seen)).toBeUndefined();
    link.pass(9);
    expect(link.see(undefined)).toBeUndefined();
    link.pass(1);
    expect(link.see(undefined)).toEqual([]);
  });

  it('doubles the delay after each flap, and resets the delay after half an hour without flaps', (link) => {
    let changes = 0;
    const see = (isPresent: boolean) => {
      if (link.see(isPresent) !== undefined) changes += 1;
    };
    // Two hours of a link that is down for three seconds, and up for 27.
    for (let time = 0; time < 7_200; time += 30) {
      see(true);
      link.pass(3);
      see(false);
      link.pass(27);
      see(false);
    }
    expect([changes, link.active()]).toEqual([5, ['no-carrier 60']]);
    link.pass(640);
    expect(link.see(false)).toEqual([]);
    link.pass(60);
    expect(link.see(true)).toEqual(['no-carrier 7900']);
    link.see(false);
    link.pass(630);
    expect(link.see(false)).toBeUndefined();
    link.pass(10);
    expect(link.see(false)).toEqual([]);
    link.pass(1_800);
    link.see(false);
    expect(link.store.conditions()).toEqual([]);
    link.see(true);
    link.see(false);
    link.pass(10);
    expect(link.see(false)).toEqual([]);
  });

  it('changes a condition at most twenty times an hour for a link that fails whenever it is offered', (link) => {
    let changes = 0;
    for (let time = 0, hold = 10; time < 3_600; hold = Math.min(2 * hold, 640)) {
      if (link.see(true) !== undefined) changes += 1;
      link.see(false);
      link.pass(hold);
      time += hold;
      if (link.see(false) !== undefined) changes += 1;
    }
    expect(changes).toBe(22);
  });

  it('still knows open conditions after a restart, even if their faults ended in between', (link) => {
    /** The next process of the driver. @returns what is in force after its first look */
    const restart = (isPresent: boolean | undefined) => {
      link.restart();
      link.see(isPresent);
      return link.active();
    };
    link.see(true);
    link.pass(50);
    // Unknown is not healthy.
    for (const seen of [true, undefined, false]) expect(restart(seen)).toEqual(['no-carrier 0']);
    link.pass(10);
    expect(restart(false)).toEqual([]);
    link.see(true);
    link.see(false);
    link.pass(10);
    expect(restart(false)).toEqual(['no-carrier 60']);
  });

  it('ends the conditions of functions that are gone or no longer offered', (link) => {
    link.see(true);
    link.see(undefined, ['0000:3b:00.0']);
    link.pass(10);
    expect(link.see(undefined, ['0000:3b:00.0'])).toBeUndefined();
    link.see(undefined, []);
    link.pass(10);
    expect(link.see(undefined, [])).toEqual([]);
  });

  it('is shared by both instances during a rolling update', (link, path) => {
    using other = bench(path);
    link.see(true);
    link.see(false);
    expect(other.see(undefined)).toEqual(['no-carrier 0']);
    for (const each of [link, other]) each.pass(10);
    expect([other.see(false), link.see(false)]).toEqual([[], []]);
  });

  it('does not extend a delay if the clock is set back', (link) => {
    link.see(true);
    link.see(false);
    link.pass(-3_600);
    link.see(undefined);
    link.pass(10);
    expect(link.see(undefined)).toEqual([]);
  });

  it('keeps working while the store rejects changes, and logs that once', (link, path) => {
    link.see(false);
    using other = new DatabaseSync(path);
    other.exec('BEGIN IMMEDIATE');
    expect(link.see(true)).toEqual(['no-carrier 0']);
    link.see(false);
    expect(link.logger.messages('warn')).toEqual(['device condition started', 'cannot store a device condition']);
    expect([link.active(), link.store.conditions()]).toEqual([['no-carrier 0'], []]);
    other.exec('ROLLBACK');
    link.see(true);
    expect(link.store.conditions()).toMatchObject([{ condition: 'no-carrier', kind: 'PF', holdMs: 20_000 }]);
  });
});
