import { beforeEach, describe, expect, it } from 'vitest';
import { Follow } from '../../../../src/driver/sandbox/follow.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { FakeNetworks, turns } from './fake-networks.ts';

const path = '/run/netns/pod';

let clock: ManualClock;
let networks: FakeNetworks;
let looks: number;
let flaps: number;
beforeEach(() => {
  clock = new ManualClock();
  networks = new FakeNetworks(path);
  looks = 0;
  flaps = 0;
});

function follow(): Follow {
  using namespace = networks.open(path);
  if (namespace === undefined) throw new Error(`there is no namespace at ${path}`);
  const ends = { watch: () => ({ [Symbol.dispose]: () => undefined }) };
  return new Follow(namespace, { networks, ends, onChange: () => looks++, onFlapping: () => flaps++, clock });
}

/** A change, and the look at it. @returns the pause between them */
async function changeAndLook(): Promise<number> {
  networks.change();
  const [pauseMs = 0] = clock.sleeping();
  clock.advance(pauseMs);
  await turns();
  return pauseMs;
}

describe('Follow, which watches the network of a pod', () => {
  it("reads the pod's network once per burst of changes", async () => {
    using _ = follow();
    for (let change = 0; change < 20; change++) networks.change();
    expect([looks, clock.sleeping()]).toEqual([0, [250]]);
    clock.advance(250);
    await turns();
    expect([looks, clock.sleeping()]).toEqual([1, []]);
  });

  it('reads a constantly changing network less and less often, logs that once, and recovers after a pause', async () => {
    using _ = follow();
    const pausesMs: number[] = [];
    for (let change = 0; change < 17; change++) pausesMs.push(await changeAndLook());
    const growing = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000];
    expect(pausesMs).toEqual([...Array(9).fill(250), ...growing]);
    expect([looks, flaps]).toEqual([17, 1]);
    clock.advance(10_001);
    expect(await changeAndLook()).toBe(250);
  });

  it('ignores further changes of a constantly changing network until the next reading', async () => {
    using _ = follow();
    for (let change = 0; change < 9; change++) await changeAndLook();
    networks.change();
    expect(networks.watches).toBe(0);
    clock.advance(500);
    await turns();
    expect([networks.watches, looks]).toEqual([1, 10]);
  });
});
