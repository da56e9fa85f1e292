import { beforeEach, describe, expect, it } from 'vitest';
import { NamespaceEnds } from '../../../../src/driver/sandbox/namespace-ends.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { FakeNetworks, turns } from './fake-networks.ts';

describe('NamespaceEnds', () => {
  let clock: ManualClock;
  let networks: FakeNetworks;
  let ends: NamespaceEnds;
  let ended: string[];
  const watch = (path: string) => ends.watch('one', path, () => ended.push(path));
  const second = async () => {
    clock.advance(1_000);
    await turns();
  };

  beforeEach(() => {
    clock = new ManualClock();
    networks = new FakeNetworks('/ns/a', '/ns/b', '/ns/c');
    ends = new NamespaceEnds({ networks, clock });
    ended = [];
  });

  it('reports each removed network namespace once, and keeps watching all others', async () => {
    for (const path of networks.list()) watch(path);
    await second();
    expect(ended).toEqual([]);
    networks.paths.delete('/ns/b');
    await second();
    await second();
    expect(ended).toEqual(['/ns/b']);
    networks.identity = 'another';
    await second();
    expect(ended).toEqual(['/ns/b', '/ns/a', '/ns/c']);
  });

  it('uses one timer for all watched namespaces, and no timer if none is watched', async () => {
    expect(clock.sleeping()).toEqual([]);
    const watches = networks.list().map(watch);
    await second();
    expect(clock.sleeping()).toEqual([1_000]);
    for (const each of watches) each[Symbol.dispose]();
    await turns();
    expect(clock.sleeping()).toEqual([]);
    networks.paths.clear();
    await second();
    expect(ended).toEqual([]);
  });

  it('watches a namespace that is added at the moment when the last watched namespace ends', async () => {
    networks.paths.delete('/ns/a');
    ends.watch('one', '/ns/a', () => watch('/ns/b'));
    await second();
    expect(clock.sleeping()).toEqual([1_000]);
    networks.paths.delete('/ns/b');
    await second();
    expect(ended).toEqual(['/ns/b']);
    expect(clock.sleeping()).toEqual([]);
  });
});
