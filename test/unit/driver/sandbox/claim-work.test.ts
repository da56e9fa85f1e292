import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Attachment, SandboxError, StateError, type StoredDevice } from '../../../../src/driver/model/index.ts';
import { ClaimWork } from '../../../../src/driver/sandbox/claim-work.ts';
import { MetadataWriter } from '../../../../src/driver/sandbox/metadata-writer.ts';
import type { NumaResult } from '../../../../src/driver/sandbox/numa-placement.ts';
import { Store } from '../../../../src/driver/state/index.ts';
import type { Attachments, VfState } from '../../../../src/driver/vf/index.ts';
import { type ClaimMetadata, claimKey, formatDeviceKey } from '../../../../src/framework/metadata/index.ts';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { storedAttachment, storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';
import { Bench } from '../../framework/metadata/bench.ts';

describe('ClaimWork for the VFs of a claim', () => {
  const identity = { namespace: 'default', name: 'fast-net', uid: 'uid' };
  const place = storedAttachment({ sandboxId: 's1' });
  const deviceOf = (index: number): StoredDevice =>
    storedDevice({ pciAddress: `0000:3b:02.${index}`, name: `dev-${index}`, request: `vf-${index}` });
  const stateOf = (index: number): VfState => ({
    interfaceName: `net${index}`,
    hardwareAddress: `02:00:00:00:00:0${index}`,
    ips: [`192.0.2.${index}/24`],
    tentative: false,
  });
  const never = new AbortController().signal;

  let bench: Bench;
  let store: Store;
  let work: ClaimWork;
  let locks: KeyedMutex;
  let clock: ManualClock;
  let metadata: ClaimMetadata;
  /** What the pod has, by name of the device; an error is thrown when it is read or attached. */
  let pod: Map<string, VfState | Error>;
  let detachErrors: Map<string, Error>;
  /** What was done with the VFs. */
  let calls: string[];
  /** What happens in the pod while a VF is attached. */
  let whileAttaching: () => void;
  /** How far the work is, as it says. */
  let steps: string[];
  let withdrawError: Error | undefined;
  /** What a write to the store fails with. */
  let storeError: StateError | undefined;
  let afterWithdrawal: () => void;
  /** Where the pod's containers are, compared with the devices. */
  let alignment: NumaResult | undefined;

  const record = (uid: string, device: StoredDevice, attachment: Attachment) => {
    device.attachment = attachment;
    store.setAttachments(uid, new Map([[formatDeviceKey(device), attachment]]));
  };

  beforeEach(async () => {
    bench = new Bench();
    store = new Store(join(bench.path, 'state.db'));
    pod = new Map([1, 2].map((index) => [`dev-${index}`, stateOf(index)]));
    detachErrors = new Map();
    calls = [];
    whileAttaching = () => undefined;
    steps = [];
    withdrawError = undefined;
    storeError = undefined;
    afterWithdrawal = () => undefined;
    alignment = undefined;
    metadata = bench.start({ layouts: ['v1'], gate: { program: '/opt/netdra-gate', timeoutSeconds: 100 } });
    const find = ({ name }: StoredDevice) => {
      const found = pod.get(name);
      if (found instanceof Error) throw found;
      return found;
    };
    const attachments = {
      read: async (device: StoredDevice) => find(device),
      attach: async (...[uid, device, , , , reconfigure]: Parameters<Attachments['attach']>) => {
        if (device.attachment !== undefined) await reconfigure?.();
        record(uid, device, { ...place, ...(device.attachment?.wasServed && { wasServed: true }) });
        calls.push(`attach ${device.name}`);
        whileAttaching();
        const state = find(device);
        if (state === undefined) throw new SandboxError('vf-missing', `${device.name} is nowhere`);
        return state;
      },
      setConfigured: (uid: string, device: StoredDevice, isConfigured: boolean) =>
        record(uid, device, { ...place, ...(isConfigured && { isConfigured }) }),
      left: (uid: string, device: StoredDevice, wasServed: boolean) => {
        if (storeError !== undefined) throw storeError;
        record(uid, device, { ...place, ...(wasServed && { wasServed }) });
      },
      detach: async (uid: string, device: StoredDevice) => {
        // Containers that wait are ended, and files are empty, before any VF leaves.
        expect([gate(), file(device.request)]).toEqual([expect.stringContaining('ended s1'), '']);
        calls.push(`detach ${device.name}`);
        const error = detachErrors.get(device.name);
        if (error !== undefined) throw error;
        store.setAttachments(uid, new Map([[formatDeviceKey(device), undefined]]));
      },
    } as unknown as Attachments;
    const files = {
      updateRequestMetadata: metadata.update.bind(metadata),
      withdrawMetadata: async (...args: Parameters<ClaimMetadata['withdraw']>) => {
        if (withdrawError !== undefined) throw withdrawError;
        await metadata.withdraw(...args);
        afterWithdrawal();
      },
      openGate: metadata.openGate.bind(metadata),
      holdGate: metadata.holdGate.bind(metadata),
      endGate: metadata.endGate.bind(metadata),
    };
    const logger = new RecordingLogger();
    locks = new KeyedMutex();
    clock = new ManualClock();
    work = new ClaimWork({
      store,
      attachments,
      locks,
      clock,
      networks: { isGone: () => false, isStill: () => true },
      files,
      metadata,
      numa: { alignmentOf: () => alignment, check: () => false, observe: () => undefined },
      writer: new MetadataWriter({ files, attributesOf: () => ({}), logger }),
      reconfigure: async (_, { name, attachment }) =>
        void calls.push(`reconfigure ${name}, ${attachment?.sandboxId ?? 'free'}`),
    });
    const devices = [1, 2].map(deviceOf);
    const requests = Object.fromEntries(
      devices.map(({ request, pool, name }) => [request, { name: request, devices: [{ pool, name }] }]),
    );
    await metadata.prepare({ claim: identity, requests }, new Map());
    store.putClaim(storedClaim({ identity, podUids: ['p'], devices }));
  });
  afterEach(() => {
    store[Symbol.dispose]();
    bench[Symbol.dispose]();
  });

  const progress = {
    deviceBegins: ({ name }: StoredDevice) => void steps.push(name),
    deviceReady: () => void steps.push('ready'),
    waits: () => void steps.push('waits'),
  };
  const links = { changed: () => void steps.push('list again') };
  const serve = () => work.serve(identity, place, links as never, never, progress);
  const claimDir = () => join(bench.dataDir, 'dra-device-metadata', 'default_fast-net');
  const gate = () => (existsSync(join(claimDir(), 'gate')) ? readFileSync(join(claimDir(), 'gate'), 'utf8') : 'none');
  const file = (request: string) => readFileSync(join(claimDir(), request, 'metadata.json'), 'utf8').trim();
  const dataOf = (index: number) => metadata.read(identity, `vf-${index}`)?.devices[0]?.networkData;

  it('keeps the attribute numaAligned until the next sandbox, even after a restart', async () => {
    const aligned = () => metadata.read(identity, 'vf-1')?.devices[0]?.attributes?.numaAligned;
    alignment = 'unknown';
    await serve();
    expect(aligned()).toBeUndefined();
    for (const [result, bool] of [
      ['misaligned', false],
      [undefined, false],
      ['aligned', true],
    ] as const) {
      alignment = result;
      await serve();
      expect(aligned()).toEqual({ bool });
    }
    alignment = undefined;
    await work.serve(identity, { ...place, sandboxId: 's2' }, links as never, never, progress);
    expect(aligned()).toBeUndefined();
  });

  it('does not attach the VFs if the claim is unprepared while ClaimWork waits for the lock', async () => {
    const unprepare = await locks.acquire(claimKey(identity));
    const served = serve();
    await setImmediate();
    expect(steps).toEqual([]);
    store.setState(['uid'], 'unpreparing');
    unprepare[Symbol.dispose]();
    expect([await served, calls]).toEqual(['gone', []]);
  });

  it('does not treat unreadable VFs as removed', async () => {
    await serve();
    pod.set('dev-1', new Error('no answer from the kernel'));
    await expect(serve()).rejects.toThrow('no answer from the kernel');
    expect([gate(), file('vf-1')]).toEqual([
      expect.stringContaining('served s1'),
      expect.stringContaining('192.0.2.1'),
    ]);
    expect(dataOf(1)).toBeDefined();
  });

  it('updates the metadata of a VF although another VF has left or is unreadable', async () => {
    await serve();
    pod.delete('dev-1');
    pod.set('dev-2', { ...stateOf(2), ips: ['192.0.2.22/24'] });
    await serve();
    expect([gate(), file('vf-1'), file('vf-2')]).toEqual(['none', '', expect.stringContaining('192.0.2.22')]);
    pod.set('dev-1', new Error('no answer'));
    pod.set('dev-2', { ...stateOf(2), ips: ['192.0.2.23/24'] });
    expect(await serve()).toMatchObject({ withdrawn: { message: 'no answer' } });
    expect([gate(), file('vf-2')]).toEqual(['none', expect.stringContaining('192.0.2.23')]);
  });

  it('withdraws the metadata of a VF that left the pod even if it cannot read another VF', async () => {
    await serve();
    pod.set('dev-1', new Error('no answer'));
    pod.delete('dev-2');
    expect(await serve()).toMatchObject({ withdrawn: { code: 'vf-left' } });
    expect([gate(), file('vf-2'), dataOf(2)]).toEqual(['none', '', undefined]);
  });

  it('withdraws the metadata of a VF that left the pod while the disk is full, and stores later that it was served', async () => {
    await serve();
    pod.delete('dev-1');
    storeError = new StateError('store-unusable', 'the disk is full');
    expect(await serve()).toMatchObject({ withdrawn: { code: 'vf-left', cause: storeError } });
    expect([gate(), file('vf-1')]).toEqual(['none', '']);
    storeError = undefined;
    await serve();
    expect(store.claim('uid')?.devices[0]?.attachment?.wasServed).toBe(true);
  });

  it('withdraws the metadata of the earlier sandbox if attaching the VFs in the next sandbox fails', async () => {
    await serve();
    for (const name of ['dev-1', 'dev-2']) pod.set(name, new Error(`${name} is busy`));
    await work.serve(identity, { ...place, sandboxId: 's2' }, links as never, never, progress);
    expect([gate(), file('vf-1'), dataOf(2)]).toEqual(['none', '', undefined]);
  });

  it('keeps the start gate closed if one VF leaves while another VF is attached again', async () => {
    await serve();
    pod.delete('dev-2');
    await serve();
    pod.set('dev-2', stateOf(2));
    whileAttaching = () => void pod.delete('dev-1');
    expect(await serve()).toMatchObject({ withdrawn: { code: 'vf-left' } });
    expect(gate()).toBe('none');
    expect(await serve()).toMatchObject({ withdrawn: { code: 'vf-left' } });
    expect([gate(), file('vf-1'), dataOf(1)]).toEqual(['none', '', undefined]);
  });

  it('keeps the start gate closed if one VF becomes unreadable while another VF is attached again', async () => {
    await serve();
    pod.delete('dev-2');
    await serve();
    pod.set('dev-2', stateOf(2));
    whileAttaching = () => void pod.set('dev-1', new Error('no answer'));
    expect(await serve()).toMatchObject({ withdrawn: { message: 'no answer' } });
    expect(gate()).toBe('none');
  });

  it('retries withdrawing the metadata of a VF that left the pod until that succeeds', async () => {
    await serve();
    pod.delete('dev-1');
    withdrawError = new Error('read-only file system');
    expect(await serve()).toMatchObject({
      withdrawn: { code: 'vf-left', cause: withdrawError },
      lost: [{ name: 'dev-1' }],
    });
    expect(dataOf(1)).toBeDefined();
    withdrawError = undefined;
    expect(await serve()).toMatchObject({ withdrawn: { code: 'vf-left' } });
    expect([gate(), file('vf-1'), dataOf(1)]).toEqual(['none', '', undefined]);
  });

  it('empties the metadata file of a VF that left the pod even if the record is already empty', async () => {
    await serve();
    const path = join(claimDir(), 'vf-1', 'metadata.json');
    const before = file('vf-1');
    for (const name of ['dev-1', 'dev-2']) pod.delete(name);
    await serve();
    // As on a full disk: the record is written, the file is not.
    writeFileSync(path, before);
    await serve();
    expect([gate(), file('vf-1')]).toEqual(['none', '']);
  });

  it('attaches all other VFs if attaching one fails, and keeps the start gate closed', async () => {
    pod.delete('dev-1');
    expect(await serve()).toMatchObject({ withdrawn: { message: 'dev-1 is nowhere' } });
    expect(calls).toEqual(['reconfigure dev-1, free', 'attach dev-1', 'reconfigure dev-2, free', 'attach dev-2']);
    expect(steps).toEqual(['list again', 'dev-1', 'dev-2', 'ready']);
    expect([gate(), file('vf-1'), dataOf(2)]).toEqual(['none', '', expect.anything()]);
    pod.set('dev-2', new Error('no answer'));
    expect(await serve()).toMatchObject({
      withdrawn: { code: 'several-failures', message: 'dev-1 is nowhere; no answer' },
    });
  });

  describe('with two VFs of one request', () => {
    beforeEach(async () => {
      const devices = [1, 2].map((index) => ({ ...deviceOf(index), request: 'vf' }));
      const requests = { vf: { name: 'vf', devices: devices.map(({ pool, name }) => ({ pool, name })) } };
      await metadata.prepare({ claim: identity, requests }, new Map());
      store.putClaim(storedClaim({ identity, podUids: ['p'], devices }));
    });
    const attached = () => calls.filter((call) => call.startsWith('attach'));
    const wasServed = () => store.claim('uid')?.devices.map(({ attachment }) => attachment?.wasServed);

    it('keeps attaching a VF that left the pod until it is back, and attaches no other VF', async () => {
      await serve();
      calls.length = 0;
      pod.delete('dev-1');
      expect(await serve()).toMatchObject({ withdrawn: { code: 'vf-left' } });
      expect([attached(), file('vf'), wasServed()]).toEqual([[], '', [true, undefined]]);
      for (let attempt = 0; attempt < 2; attempt++) await serve();
      expect(attached()).toEqual(['attach dev-1', 'attach dev-1']);
      pod.set('dev-1', stateOf(1));
      expect(await serve()).toBe('ready');
      expect(attached()).toEqual(Array(3).fill('attach dev-1'));
      expect([gate(), file('vf')]).toEqual([
        expect.stringContaining('served s1'),
        expect.stringMatching(/192\.0\.2\.1.*192\.0\.2\.2/s),
      ]);
    });

    it('attaches a VF again after it left the pod, even if the driver was killed while it withdrew the metadata', async () => {
      await serve();
      pod.delete('dev-1');
      afterWithdrawal = () => {
        throw new Error('killed');
      };
      await serve();
      afterWithdrawal = () => undefined;
      expect(file('vf')).toBe('');
      pod.set('dev-1', stateOf(1));
      calls.length = 0;
      expect(await serve()).toBe('ready');
      expect(attached()).toEqual(['attach dev-1']);
    });

    it('attaches again only the VF that left the pod, even if an older driver version attached the VFs', async () => {
      await serve();
      store.setAttachments('uid', new Map(store.claim('uid')?.devices.map((each) => [formatDeviceKey(each), place])));
      expect(await serve()).toBe('ready');
      calls.length = 0;
      pod.delete('dev-1');
      for (let attempt = 0; attempt < 2; attempt++) await serve();
      expect(attached()).toEqual(['attach dev-1']);
    });

    it('attaches a VF only once, even if the other VF can never be attached', async () => {
      pod.delete('dev-2');
      for (let attempt = 0; attempt < 2; attempt++) await serve();
      expect(attached()).toEqual(['attach dev-1', 'attach dev-2', 'attach dev-2']);
      pod.delete('dev-1');
      await serve();
      expect(wasServed()).toEqual([undefined, undefined]);
    });

    it('repeats attaching a VF if the result of the first attempt is unknown', async () => {
      pod.set('dev-1', new Error('no answer'));
      await serve();
      pod.set('dev-1', stateOf(1));
      expect(await serve()).toBe('ready');
      expect(attached()).toEqual(['attach dev-1', 'attach dev-2', 'attach dev-1']);
    });
  });

  describe('with VFs that wait for a router', () => {
    const advertised: VfState = { ...stateOf(1), ips: ['2001:db8::1/64', '192.0.2.1/24'], isAutoconfigured: true };

    beforeEach(() => {
      const devices = [1, 2].map((index) => ({ ...deviceOf(index), config: { slaac: { waitSeconds: index } } }));
      store.putClaim(storedClaim({ identity, podUids: ['p'], devices }));
    });

    /** Advances the time until the work ends. */
    async function served(after: (ms: number) => void = () => undefined) {
      let isOver = false;
      const work = serve().finally(() => (isOver = true));
      for (let ms = 0; !isOver; await setImmediate()) {
        if (clock.sleeping().length === 0) continue;
        clock.advance(250);
        ms += 250;
        after(ms);
      }
      return { result: await work, ms: clock.nowMs() };
    }

    it('starts containers when all VFs have addresses', async () => {
      expect(
        await served((ms) => {
          expect([gate(), file('vf-1')]).toEqual(['none', '']);
          if (ms === 250) pod.set('dev-1', advertised);
          if (ms === 500) pod.set('dev-2', { ...advertised, ips: ['2001:db8::2/64'] });
        }),
      ).toEqual({ result: 'ready', ms: 500 });
      expect(steps).toEqual([
        'list again',
        'dev-1',
        'ready',
        'dev-2',
        'ready',
        ...Array(2).fill(['waits', 'list again']).flat(),
      ]);
      expect(gate()).not.toBe('none');
      expect([dataOf(1)?.ips, dataOf(2)?.ips]).toEqual([advertised.ips, ['2001:db8::2/64']]);
    });

    it('starts no container if a VF has no address after the longest wait, and waits again at a retry', async () => {
      const { result, ms } = await served(() => pod.set('dev-1', advertised));
      expect([result, ms]).toEqual([{ withdrawn: expect.objectContaining({ code: 'no-router-address' }) }, 2_000]);
      expect((result as { withdrawn: Error }).withdrawn.message).toBe(
        'no router gave a usable IPv6 address within slaac.waitSeconds to dev-2 (2 s)',
      );
      expect([gate(), dataOf(1)?.ips, dataOf(2)]).toEqual(['none', advertised.ips, undefined]);
      pod.set('dev-2', advertised);
      expect(await served()).toEqual({ result: 'ready', ms: 2_000 });
    });

    it('names the VFs without an address, and the addresses that other hosts have', async () => {
      pod.set('dev-2', { ...stateOf(2), duplicates: ['2001:db8::2/64', 'fe80::2/64'] });
      const { result } = await served();
      expect((result as { withdrawn: Error }).withdrawn.message).toBe(
        'no router gave a usable IPv6 address within slaac.waitSeconds to dev-1 (1 s), dev-2 (2 s; other hosts have 2001:db8::2/64, fe80::2/64)',
      );
    });

    it('starts no container if one VF loses its address before another VF gets an address', async () => {
      await served(() => pod.set('dev-1', advertised));
      pod.set('dev-1', stateOf(1));
      pod.set('dev-2', advertised);
      const { result, ms } = await served();
      expect([result, ms]).toEqual([{ withdrawn: expect.objectContaining({ code: 'no-router-address' }) }, 3_000]);
      // Containers may run that started before one of the VFs left the pod: they see the change.
      expect([gate(), dataOf(1)?.ips, dataOf(2)?.ips]).toEqual(['none', stateOf(1).ips, advertised.ips]);
      expect(await served()).toEqual({ result, ms: 4_000 });
      expect(gate()).toBe('none');
      pod.set('dev-1', advertised);
      expect(await served()).toEqual({ result: 'ready', ms: 4_000 });
    });

    it('starts no container if a VF loses its address while another VF waits for an address', async () => {
      pod.set('dev-1', advertised);
      const { result } = await served((ms) => {
        if (ms === 250) pod.set('dev-1', stateOf(1));
        if (ms === 500) pod.set('dev-2', advertised);
      });
      expect(result).toEqual({ withdrawn: expect.objectContaining({ code: 'no-router-address' }) });
      expect([gate(), dataOf(1)]).toEqual(['none', undefined]);
    });

    it('does not wait again for an address once containers may run', async () => {
      for (const name of ['dev-1', 'dev-2']) pod.set(name, advertised);
      await served();
      pod.set('dev-1', stateOf(1));
      expect(await served()).toEqual({ result: 'ready', ms: 0 });
      expect([gate(), dataOf(1)?.ips]).toEqual([expect.stringContaining('served s1'), stateOf(1).ips]);
    });

    it.each([
      ['has left', () => pod.delete('dev-1'), 'vf-left'],
      ['becomes unreadable', () => pod.set('dev-1', new SandboxError('vf-unknown', 'no answer')), 'vf-unknown'],
    ])('starts no container if a VF %s meanwhile', async (_what, change, code) => {
      const { result } = await served(() => {
        change();
        pod.set('dev-2', advertised);
      });
      expect(result).toEqual({ withdrawn: expect.objectContaining({ code }) });
      expect([gate(), dataOf(1)]).toEqual(['none', undefined]);
    });

    it('reports at once that a VF cannot be attached, without waiting for a router', async () => {
      pod.delete('dev-1');
      expect(await served()).toEqual({ result: { withdrawn: expect.objectContaining({ code: 'vf-missing' }) }, ms: 0 });
      expect([gate(), dataOf(2)]).toEqual(['none', undefined]);
    });

    it('reports at once that a VF left the pod, without waiting for the router of another VF', async () => {
      pod.set('dev-1', advertised);
      const { ms } = await served();
      pod.delete('dev-1');
      expect(await served()).toMatchObject({ result: { withdrawn: { code: 'vf-left' } }, ms });
      expect([gate(), dataOf(1), dataOf(2)]).toEqual(['none', undefined, undefined]);
    });

    it('starts containers at once if slaac.waitSeconds is 0', async () => {
      const devices = [1, 2].map((index) => ({ ...deviceOf(index), config: { slaac: { waitSeconds: 0 } } }));
      store.putClaim(storedClaim({ identity, podUids: ['p'], devices }));
      expect(await served()).toEqual({ result: 'ready', ms: 0 });
      expect(steps).not.toContain('waits');
    });
  });

  it('detaches all other VFs if detaching one fails, and reports each failure', async () => {
    await serve();
    calls.length = 0;
    detachErrors.set('dev-1', new Error('dev-1 is busy'));
    await expect(work.detach(identity, 's1', 'gone')).rejects.toThrow('dev-1 is busy');
    expect([calls, gate()]).toEqual([['detach dev-1', 'detach dev-2'], expect.stringContaining('ended s1')]);
    store.setAttachments('uid', new Map([[formatDeviceKey(deviceOf(2)), place]]));
    detachErrors.set('dev-2', new Error('dev-2 is busy'));
    await expect(work.detach(identity, 's1', 'gone')).rejects.toThrow('dev-1 is busy; dev-2 is busy');
    // Containers of a sandbox without any of the VFs may wait, too.
    expect(await work.detach(identity, 's2', 'gone')).toBe(0);
    expect(gate()).toContain('ended s2');
  });
});
