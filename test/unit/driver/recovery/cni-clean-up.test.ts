import { describe, expect, it, vi } from 'vitest';
import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import { CniCleanUp } from '../../../../src/driver/recovery/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { KeyedMutex, type Locks } from '../../../../src/lib/keyed-mutex.ts';
import { type CachedAttachment, CniError, parseCniNetwork } from '../../../../src/node/cni/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { storedClaim, storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';
import { allocated, DriverBench } from '../claims/driver-bench.ts';

const network = parseCniNetwork({ cniVersion: '1.0.0', name: 'fast', type: 'sriov' }, 'test');
const cached = (containerId: string, ifName: string): CachedAttachment => ({
  kind: 'chain',
  attachment: { network, containerId, ifName, netnsPath: '/run/netns/x' },
});

function claim(sandboxId: string, interfaceName: string): StoredClaim {
  const attachment = { podNamespace: 'default', podName: 'app', podUid: 'p', sandboxId, netnsPath: '/run/netns/x' };
  const device = storedDevice({ pciAddress: '0000:01:10.0', config: { interfaceName } });
  const identity = { uid: sandboxId, namespace: 'default', name: 'c' };
  return storedClaim({ identity, podUids: ['p'], devices: [{ ...device, attachment }] });
}

function create(
  attachments: CachedAttachment[],
  claims: StoredClaim[],
  {
    failing = [],
    onDelete = () => undefined,
    locks = new KeyedMutex(),
  }: { failing?: string[]; onDelete?: () => unknown; locks?: Locks } = {},
) {
  const logger = new RecordingLogger();
  const deleted: string[] = [];
  const cleanUp = new CniCleanUp({
    runner: {
      cachedAttachments: async () => ({ attachments, problems: [new CniError('cni-cache-unusable', 'half a file')] }),
      deleteCached: async ({ attachment: { containerId, ifName } }) => {
        if (failing.includes(containerId)) throw new CniError('cni-plugin-failed', 'no');
        deleted.push(`${containerId}/${ifName}`);
        await onDelete();
      },
      releaseCached: async ({ attachment: { containerId, ifName } }) => {
        deleted.push(`addresses of ${containerId}/${ifName}`);
      },
    },
    store: storedClaims(() => claims),
    locks,
    clock: systemClock,
    logger,
  });
  return { cleanUp, deleted, logger };
}

describe('CniCleanUp', () => {
  it('deletes attachments by sandbox and interface, and keeps attachments of prepared VFs', async () => {
    const attachments = [cached('s1', 'net1'), cached('s1', 'net2'), cached('s2', 'net1')];
    const { cleanUp, deleted, logger } = create(attachments, [claim('s1', 'net1')]);
    await cleanUp.run();
    expect(deleted).toEqual(['s1/net2', 's2/net1']);
    expect(logger.messages('warn')).toEqual(['cannot read a cached CNI attachment']);
  });

  it('releases only the addresses of an attachment whose device now belongs to another claim', async () => {
    const { kind, attachment } = cached('s1', 'net1');
    const ofDevice = { kind, attachment: { ...attachment, deviceId: '0000:01:10.0' } };
    const { cleanUp, deleted } = create([ofDevice, cached('s3', 'net1')], [claim('s2', 'net1')]);
    await cleanUp.run();
    expect(deleted).toEqual(['addresses of s1/net1', 's3/net1']);
  });

  it('delays the next claim of a device until the attachment of that device is deleted', async () => {
    using bench = new DriverBench();
    const { kind, attachment } = cached('s1', 'net1');
    const ofDevice = { kind, attachment: { ...attachment, deviceId: '0000:00:00.2' } };
    const deletion = Promise.withResolvers<void>();
    const onDelete = () => deletion.promise;
    const { cleanUp, deleted } = create([ofDevice], [], { locks: bench.locks, onDelete });
    const run = cleanUp.run();
    await vi.waitUntil(() => deleted.length === 1);
    const prepared = bench.prepare(allocated('c', ['dev-2']));
    await vi.waitUntil(() => bench.locks.waiting === 1);
    // The claim has the device, so that no other deletion begins, and has not read it.
    expect(bench.store.claims()).toMatchObject([{ state: 'preparing' }]);
    expect(bench.control.calls).toEqual([]);
    deletion.resolve();
    expect(await prepared).toMatchObject({ devices: [] });
    await run;
  });

  it('does not delete an attachment that comes into use while the deletion waits for its device', async () => {
    const claims: StoredClaim[] = [];
    const locks = new KeyedMutex();
    const acquireAll = async (...args: Parameters<Locks['acquireAll']>) => {
      claims.push(claim('s1', 'net1'));
      return await KeyedMutex.prototype.acquireAll.apply(locks, args);
    };
    const { cleanUp, deleted } = create([cached('s1', 'net1')], claims, {
      locks: Object.assign(locks, { acquireAll }),
    });
    await cleanUp.run();
    expect(deleted).toEqual([]);
  });

  it('continues after a failed deletion, and logs it', async () => {
    const { cleanUp, deleted, logger } = create([cached('s1', 'net1'), cached('s2', 'net1')], [], { failing: ['s1'] });
    cleanUp.start();
    await expect.poll(() => deleted).toEqual(['s2/net1']);
    await cleanUp[Symbol.asyncDispose]();
    expect(logger.messages('warn')).toContain('cannot delete the CNI attachment of a removed sandbox');
  });

  it('stops when the driver stops', async () => {
    const { cleanUp, deleted } = create([cached('s1', 'net1')], []);
    cleanUp.start();
    await cleanUp[Symbol.asyncDispose]();
    expect(deleted).toEqual([]);
  });

  it('deletes attachments that were unused in two successive sweeps', async () => {
    const claims: StoredClaim[] = [];
    const { cleanUp, deleted } = create([cached('s1', 'net1'), cached('s2', 'net1')], claims);
    const { signal } = new AbortController();
    await cleanUp.sweep(signal);
    expect(deleted).toEqual([]);
    claims.push(claim('s1', 'net1'));
    await cleanUp.sweep(signal);
    expect(deleted).toEqual(['s2/net1']);
  });

  it.each(['run', 'sweep'] as const)(
    'skips an attachment that comes into use during a long sweep: %s',
    async (task) => {
      const claims: StoredClaim[] = [];
      const onDelete = () => void claims.push(claim('s2', 'net1'));
      const { cleanUp, deleted } = create([cached('s1', 'net1'), cached('s2', 'net1')], claims, { onDelete });
      const { signal } = new AbortController();
      await cleanUp[task](signal);
      if (task === 'sweep') await cleanUp.sweep(signal);
      expect(deleted).toEqual(['s1/net1']);
    },
  );
});
