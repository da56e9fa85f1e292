import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findOtherEthtool } from '../../../../src/driver/vf/ethtool-settings.ts';
import { readLinkState, restoreLinkState } from '../../../../src/node/netlink/index.ts';
import { ModeratingDriver, type ModeratingDriverOptions } from '../../../doubles/moderating-driver.ts';
import { SriovCard } from '../../../doubles/sriov-card.ts';

const fixed = { useAdaptiveRx: false, useAdaptiveTx: false, rxUsecs: 0, txUsecs: 8, rxUsecsHigh: 0 };
const adaptive = { useAdaptiveRx: true, useAdaptiveTx: true, rxUsecs: 50, txUsecs: 50, rxUsecsHigh: 0 };

describe('restoreLinkState', () => {
  let card: SriovCard;
  beforeEach(() => {
    card = new SriovCard();
  });
  afterEach(() => card[Symbol.dispose]());

  /** @param changed what a pod has left behind @returns the properties that could not be restored, and the values then */
  async function restore(before: typeof fixed, changed: typeof fixed, options?: ModeratingDriverOptions) {
    using driver = new ModeratingDriver(before, options);
    const { index } = card.link(0)!;
    const state = await readLinkState(card.host, index, driver);
    driver.values = changed;
    const failures = await restoreLinkState(card.host, index, state, driver);
    return { failures: failures.map(({ property }) => property), values: driver.values };
  }

  it.each([
    ['adaptive coalescing after a fixed one', adaptive, fixed],
    ['fixed coalescing after an adaptive one', fixed, adaptive],
    [
      'one direction to adaptive and the other to fixed',
      { ...adaptive, useAdaptiveTx: false },
      { ...fixed, useAdaptiveTx: true },
    ],
    ['fixed interrupt delays', fixed, { ...fixed, rxUsecs: 30 }],
    [
      'the delay of a fixed direction when the other direction is adaptive',
      { ...adaptive, useAdaptiveTx: false },
      { ...adaptive, useAdaptiveTx: false, txUsecs: 30 },
    ],
    ['a rate limit that the driver changes only in fixed modes', adaptive, { ...adaptive, rxUsecsHigh: 20 }],
  ])('restores %s', async (_, before, changed) => {
    expect(await restore(before, changed)).toEqual({ failures: [], values: before });
  });

  it('restores fixed interrupt delays that the driver resets when it leaves adaptive mode', async () => {
    const changed = { ...fixed, useAdaptiveRx: true };
    expect(await restore(fixed, changed, { resetRxUsecs: 12 })).toEqual({ failures: [], values: fixed });
  });

  it.each([
    ['sets itself', { adaptedRxUsecs: 62 }, 62],
    ['refuses', { mostUsecs: 49 }, 0],
  ])('restores adaptive mode, whose interrupt delay the driver %s', async (_, options, rxUsecs) => {
    const before = { ...adaptive, txUsecs: 8 };
    expect(await restore(before, fixed, options)).toEqual({ failures: [], values: { ...before, rxUsecs } });
  });

  it('restores an interrupt delay that the driver keeps in adaptive mode', async () => {
    const changed = { ...adaptive, rxUsecs: 10 };
    expect(await restore(adaptive, changed, { takesAll: true })).toEqual({ failures: [], values: adaptive });
  });

  it('does not restore an interrupt delay that the driver has changed in adaptive mode', async () => {
    const changed = { ...adaptive, rxUsecs: 62 };
    expect(await restore(adaptive, changed)).toEqual({ failures: [], values: changed });
  });

  it('reports a fixed interrupt delay that the driver rejects, and restores the mode of the other direction', async () => {
    const before = { ...fixed, useAdaptiveTx: true, rxUsecs: 50 };
    const { failures, values } = await restore(before, fixed, { mostUsecs: 49 });
    expect(failures).toEqual(['coalescing']);
    expect(values).toMatchObject({ useAdaptiveTx: true });
  });
});

describe('applying coalescing of a class', () => {
  it.each([
    ['fixed', { useAdaptiveRx: false, rxUsecs: 0 }, adaptive, {}],
    [
      'fixed with the number that the driver had adapted',
      { useAdaptiveRx: false, rxUsecs: 50 },
      adaptive,
      { resetRxUsecs: 12 },
    ],
    ['adaptive', { useAdaptiveRx: true, rxUsecs: 50 }, fixed, {}],
    [
      'adaptive with a number that the driver replaces',
      { useAdaptiveRx: true, rxUsecs: 50 },
      fixed,
      { adaptedRxUsecs: 62 },
    ],
    [
      'adaptive with another number',
      { useAdaptiveRx: true, rxUsecs: 20, txUsecs: 30 },
      { ...adaptive, useAdaptiveTx: false },
      {},
    ],
  ])('sets the mode and number of the class: %s', async (_, coalescing, before, options) => {
    using driver = new ModeratingDriver(before, options);
    await driver.apply(1, 'coalescing', coalescing);
    const { rxUsecs: _rx, ...rest } = coalescing;
    expect(driver.values).toMatchObject(coalescing.useAdaptiveRx ? rest : coalescing);
    expect(await findOtherEthtool(driver, 1, { coalescing })).toBeUndefined();
  });

  it('rejects an interrupt delay without effect, as in adaptive mode', async () => {
    using driver = new ModeratingDriver(adaptive);
    await expect(driver.apply(1, 'coalescing', { rxUsecs: 0 })).rejects.toMatchObject({ errno: 'EINVAL' });
    expect(await findOtherEthtool(driver, 1, { coalescing: { rxUsecs: 0 } })).toBeDefined();
  });
});
