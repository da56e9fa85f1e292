import { setImmediate } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { Announcements } from '../../../../src/driver/vf/announcements.ts';
import type { PodLinks } from '../../../../src/driver/vf/index.ts';
import type { NetworkNamespace } from '../../../../src/driver/vf/networks.ts';
import { encodeAnnouncement, encodeArpProbe, NetlinkError } from '../../../../src/node/netlink/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';

const attachment = { podUid: 'pod', netnsPath: '/run/netns/pod' };
const device = { pciAddress: '0000:3b:02.1', name: 'vf-1', attachment } as StoredDevice;
const address = '192.0.2.10/24';
const state = {
  hardwareAddress: '02:00:00:00:00:01',
  interfaceName: 'net1',
  ips: [address],
  linkUp: true,
  tentative: false,
};
const probe = encodeArpProbe(state.hardwareAddress, address);
/** More than a run of two probes and two announcements takes. */
const runMs = 1_400;

async function pass(clock: ManualClock, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 100) {
    clock.advance(Math.min(left, 100));
    await setImmediate();
  }
}

it('announcing a VF starts over in a new sandbox if the earlier sandbox is still being announced', async () => {
  const clock = new ManualClock();
  const logger = new RecordingLogger();
  const announcements = new Announcements({
    clock,
    logger,
    networks: { open: () => undefined },
    onConflict: () => undefined,
  });
  const podIn = (packets: object) =>
    ({
      namespace: {
        connection: { link: async () => ({ index: 7 }) },
        packets: () => ({ receive: () => undefined, [Symbol.dispose]: () => undefined, ...packets }),
      },
    }) as unknown as PodLinks;
  let isGone = false;
  const before = podIn({
    send() {
      if (isGone) throw new NetlinkError('packet-refused', 'the link has left', { errno: 'ENXIO' });
    },
  });
  const sent: string[] = [];
  const after = podIn({ send: (frame: Buffer) => sent.push(probe.equals(frame) ? 'probe' : 'announcement') });
  await announcements.configured(device, before, state);
  await pass(clock, 900);
  announcements.forget(device);
  isGone = true;
  await announcements.configured(device, after, state);
  await pass(clock, 2 * runMs);
  expect(sent).toEqual(['probe', 'announcement', 'probe', 'announcement']);
  expect(logger.messages('warn')).toEqual([]);
});

it('announcing a VF in a network with endless traffic reads at most 1,024 frames after each probe', async () => {
  const clock = new ManualClock();
  const announcements = new Announcements({
    clock,
    logger: new RecordingLogger(),
    networks: { open: () => undefined },
    onConflict: () => undefined,
  });
  const ofOthers = encodeAnnouncement('02:00:00:00:00:99', '192.0.2.99/24');
  const frames = { sent: 0, received: 0 };
  const packets = () => ({
    send: () => frames.sent++,
    receive() {
      frames.received++;
      return ofOthers;
    },
    [Symbol.dispose]: () => undefined,
  });
  const namespace = { connection: { link: async () => ({ index: 7 }) }, packets };
  await announcements.configured(device, { namespace } as unknown as PodLinks, state);
  await pass(clock, runMs);
  expect(frames).toEqual({ sent: 4, received: 2 * 1_024 });
});

describe('duplicate addresses of a VF', () => {
  let clock: ManualClock;
  let announcements: Announcements;
  /** How often addresses were probed, and how often the VF was to be read again. */
  let [runs, readings] = [0, 0];
  /** The MAC addresses that claim the address after the next probes. */
  let claimants: (string | undefined)[];

  const namespace = {
    connection: { link: async () => ({ index: 7 }), links: async () => [] },
    packets: () => {
      runs++;
      let answer: Buffer | undefined;
      return {
        send: (frame: Buffer) => {
          if (!probe.equals(frame)) return;
          const claimant = claimants.shift();
          answer = claimant === undefined ? undefined : encodeAnnouncement(claimant, address);
        },
        receive: () => {
          const frame = answer;
          answer = undefined;
          return frame;
        },
        [Symbol.dispose]: () => undefined,
      };
    },
    [Symbol.dispose]: () => undefined,
  } as unknown as NetworkNamespace;
  const pod = { namespace } as PodLinks;

  const read = (ips = state.ips) => announcements.read(device, pod, { ...state, ips });

  beforeEach(() => {
    clock = new ManualClock();
    [runs, readings, claimants] = [0, 0, []];
    announcements = new Announcements({
      clock,
      logger: new RecordingLogger(),
      networks: { open: () => namespace },
      onConflict: () => {
        readings++;
        // Some time later, as the sandboxes do it.
        void clock.sleep(100).then(() => read());
      },
    });
  });

  it('cause no additional probes if two hosts answer alternately', async () => {
    claimants = Array.from({ length: 100 }, (_, n) => `02:00:00:00:00:${(n % 2) + 10}`);
    await read();
    await pass(clock, 9_000);
    expect([runs, readings]).toEqual([1, 1]);
    await pass(clock, 2_000);
    await read();
    await pass(clock, runMs);
    expect([runs, readings]).toEqual([2, 1]);
    expect([...announcements.conflictsOf(device).keys()]).toEqual([address]);
  });

  it('are not probed forever if a host answers only every second probe', async () => {
    claimants = Array.from({ length: 100 }, (_, n) => (n % 2 === 0 ? undefined : '02:00:00:00:00:99'));
    await read();
    await pass(clock, 60_000);
    expect([runs, readings]).toEqual([1, 1]);
  });

  it('are forgotten when the interface loses its last address', async () => {
    claimants = Array(2).fill('02:00:00:00:00:99');
    await read();
    await pass(clock, runMs);
    expect(announcements.conflictsOf(device).size).toBe(1);
    await read([]);
    expect(announcements.conflictsOf(device).size).toBe(0);
  });
});
