import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DeviceState } from '../../../../src/driver/devices/device-state.ts';
import { LacpRelay } from '../../../../src/driver/devices/lacp-relay.ts';
import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import { Store } from '../../../../src/driver/state/index.ts';
import { toVfWanted } from '../../../../src/driver/vf/vf-wanted.ts';
import { claimKey } from '../../../../src/framework/metadata/index.ts';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { DriverBinding, VfHardware } from '../../../../src/node/sriov/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { JumpingClock } from '../../../doubles/quirky-card.ts';
import { pfAddress, SriovCard, type SriovCardOptions } from '../../../doubles/sriov-card.ts';
import { storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const stateWith = (pfs: string[]): DeviceState => ({
  policy: { health: { lacpRelay: true } },
  conditions: pfs.map((pciAddress) => {
    return { pciAddress, kind: 'PF', condition: 'lacp-partner-lost', sinceMs: 0, holdMs: 10_000 };
  }),
  hungWrites: [],
  keepsTaints: true,
});

let stack: DisposableStack;
let logger: RecordingLogger;
beforeEach(() => {
  stack = new DisposableStack();
  logger = new RecordingLogger();
});
afterEach(() => stack.dispose());

/** A card, and one claim for each of its VFs. @param linkStates what each claim asks for */
async function open(
  linkStates: (StoredClaim['devices'][0]['config']['vf'] | undefined)[],
  options: SriovCardOptions = {},
) {
  const card = stack.use(new SriovCard({ vfs: linkStates.length, ...options }));
  const clock = new JumpingClock();
  const control = new VfHardware({ binding: new DriverBinding(card.root, card.write, clock), host: card.host, clock });
  const path = join(stack.use(tempDir()).path, 'state.db');
  const locks = new KeyedMutex();
  const devices = { isListed: true, state: stateWith([]), vfs: { adminInfo: control.info.bind(control) } };
  /** Another process of the driver, with the same store and card. */
  const start = () => {
    const store = stack.use(new Store(path));
    const relay = new LacpRelay({ devices, store, control, locks, logger });
    return { relay, store };
  };
  const { store } = start();
  for (const [index, vf] of linkStates.entries()) {
    const address = card.address(index);
    const config = vf === undefined ? {} : { vf };
    const before = await control.snapshot(address);
    await control.configure(address, toVfWanted(config), before);
    store.putClaim(
      storedClaim({
        identity: { uid: `u${index}`, namespace: 'default', name: `c${index}` },
        devices: [storedDevice({ ...address, name: `vf${index}`, config, before })],
      }),
    );
  }
  const states = () => linkStates.map((_, index) => card.info(index)?.linkState);
  /** @param pfs those without a partner. Absent: the devices are not listed yet */
  const follow = async (relay: LacpRelay, pfs?: string[]) => {
    Object.assign(devices, { isListed: pfs !== undefined, state: stateWith(pfs ?? []) });
    await relay.follow();
    return states();
  };
  const silenced = () =>
    store.claims().filter(({ devices }) => devices.some(({ isDisabledForLacp }) => isDisabledForLacp));
  return { card, control, store, locks, start, follow, silenced, states };
}

describe('LacpRelay', () => {
  it('disables VF links while the LACP partner is lost, but keeps link states set by claims', async () => {
    const node = await open([undefined, { linkState: 'auto' }, { linkState: 'enable' }, { linkState: 'disable' }]);
    const { relay } = node.start();
    expect(await node.follow(relay, [pfAddress])).toEqual(['disable', 'disable', 'enable', 'disable']);
    expect(await node.follow(relay, ['0000:05:00.0'])).toEqual(['auto', 'auto', 'enable', 'disable']);
    expect(node.silenced()).toEqual([]);
  });

  it('enables again after a restart only those VF links that it had disabled', async () => {
    const node = await open([undefined, undefined]);
    await node.follow(node.start().relay, [pfAddress]);
    // Not listed yet: what is unknown is not over.
    expect(await node.follow(node.start().relay)).toEqual(['disable', 'disable']);
    await node.card.host.setVf(5, 1, { linkState: 'enable' });
    expect(await node.follow(node.start().relay, [])).toEqual(['auto', 'enable']);
    expect(node.silenced()).toEqual([]);
  });

  it.each([
    ['before the PF set the state', 'auto', [pfAddress], 'disable'],
    ['before the PF set the state, and the partner has returned', 'auto', [], 'auto'],
    ['and the card was reset since', 'auto', [pfAddress], 'disable'],
  ] as const)(
    'completes a change of the link state if the driver was killed %s',
    async (_when, linkState, pfs, expected) => {
      const node = await open([undefined]);
      await node.follow(node.start().relay, [pfAddress]);
      await node.card.host.setVf(5, 0, { linkState });
      expect(await node.follow(node.start().relay, [...pfs])).toEqual([expected]);
    },
  );

  it('ignores a VF that an administrator disabled, or whose claim is not prepared', async () => {
    const node = await open([undefined, undefined]);
    await node.card.host.setVf(5, 0, { linkState: 'disable' });
    node.store.setState(['u1'], 'unpreparing');
    const { relay } = node.start();
    expect(await node.follow(relay, [pfAddress])).toEqual(['disable', 'auto']);
    expect(await node.follow(relay, [])).toEqual(['disable', 'auto']);
  });

  it('does not change a VF whose claim is being unprepared, because its snapshot gets restored', async () => {
    const node = await open([undefined]);
    const { relay } = node.start();
    await node.follow(relay, [pfAddress]);
    const [claim] = node.store.claims();
    const [device] = claim!.devices;
    await node.control.restore(device!, device!.before!);
    node.store.deleteClaim('u0');
    expect(await node.follow(relay, [pfAddress])).toEqual(['auto']);
  });

  it('logs once that a card cannot set link states, and stores nothing', async () => {
    const node = await open([undefined, undefined], { unsupported: ['linkState'] });
    const { relay } = node.start();
    for (const pfs of [[pfAddress], [pfAddress], []]) expect(await node.follow(relay, pfs)).toEqual(['auto', 'auto']);
    expect(node.silenced()).toEqual([]);
    const message = 'cannot make links of VFs follow the LACP partner: the card cannot set the link state of a VF';
    expect(logger.messages('warn')).toEqual([message]);
  });

  it('retries a link state that the PF rejected, and logs the rejection once', async () => {
    const node = await open([undefined]);
    const { relay } = node.start();
    node.card.leftOut.add(0);
    for (let look = 0; look < 2; look++) expect(await node.follow(relay, [pfAddress])).toEqual(['auto']);
    expect(logger.messages('warn')).toEqual(['cannot make the link of a VF follow the LACP partner']);
    node.card.leftOut.clear();
    expect(await node.follow(relay, [pfAddress])).toEqual(['disable']);
  });

  it('changes the links of all other VFs, and can be stopped, while other work holds the lock of one claim', async () => {
    const node = await open([undefined, undefined]);
    const { relay } = node.start();
    const lock = await node.locks.acquire(claimKey(node.store.claim('u0')!.identity));
    const lost = node.follow(relay, [pfAddress]);
    await expect.poll(node.states).toEqual(['auto', 'disable']);
    const back = node.follow(relay, []);
    await expect.poll(node.states).toEqual(['auto', 'auto']);
    lock[Symbol.dispose]();
    await Promise.all([lost, back]);
    expect(node.silenced()).toEqual([]);
    using _ = await node.locks.acquire(claimKey(node.store.claim('u0')!.identity));
    const waiting = node.follow(relay, [pfAddress]);
    await expect.poll(node.states).toEqual(['auto', 'disable']);
    await relay[Symbol.asyncDispose]();
    expect(await waiting).toEqual(['auto', 'disable']);
  });

  it('makes the same decisions in both driver instances of a rolling update', async () => {
    const node = await open([undefined, undefined]);
    const [one, other] = [node.start().relay, node.start().relay];
    const both = async (pfs: string[]) => (await Promise.all([one, other].map((each) => node.follow(each, pfs))))[0];
    expect(await both([pfAddress])).toEqual(['disable', 'disable']);
    expect(await both([])).toEqual(['auto', 'auto']);
    expect(node.silenced()).toEqual([]);
  });
});
