import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { endEarlierBoots } from '../../../../src/driver/recovery/index.ts';
import { Store } from '../../../../src/driver/state/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const device = storedDevice({ config: { driver: 'vfio-pci' } });
const used: StoredDevice = {
  ...device,
  before: { driver: 'iavf', vf: { trust: false } },
  access: { nodes: ['/dev/vfio/7'], vfio: { device: '/dev/vfio/7', iommuGroup: '7' } },
  attachment: { podNamespace: 'default', podName: 'app', podUid: 'p', sandboxId: 's', netnsPath: '/run/netns/x' },
  isDisabledForLacp: true,
};
const identity = (name: string) => ({ namespace: 'default', name, uid: `uid-${name}` });

function open(dir: string, bootId: string) {
  return new Store(join(dir, 'state.db'), { bootId });
}

function end(store: Store, withdraw: (name: string) => Promise<void> = async () => undefined) {
  const logger = new RecordingLogger();
  return endEarlierBoots({ store, withdraw: ({ name }) => withdraw(name), logger });
}

describe('endEarlierBoots', () => {
  it('withdraws metadata files of earlier boots, and drops the stored attachments and original states of their VFs', async () => {
    using dir = tempDir();
    {
      using store = open(dir.path, 'boot-1');
      store.putClaim(storedClaim({ identity: identity('a'), podUids: ['p'], devices: [used] }));
      store.putClaim(storedClaim({ identity: identity('b'), podUids: ['q'], state: 'unpreparing' }));
    }
    using store = open(dir.path, 'boot-2');
    const withdrawn: string[] = [];
    await end(store, async (name) => {
      const [first] = store.claim(`uid-${name}`)?.devices ?? [];
      withdrawn.push(`${name}, ${first?.attachment === undefined ? 'nowhere' : 'attached'}`);
    });
    // Before it is forgotten that there was something to withdraw.
    expect(withdrawn).toEqual(['a, attached', 'b, nowhere']);
    // The device stays taken: no other claim gets it, and the kubelet prepares this one again.
    const left = storedClaim({ identity: identity('a'), podUids: ['p'], state: 'preparing', devices: [device] });
    expect(store.claim('uid-a')).toEqual(left);
    expect(store.claim('uid-b')?.state).toBe('unpreparing');
    expect(await end(store)).toBe(0);
  });

  it('continues if files cannot be withdrawn, since the next prepare also hides them', async () => {
    using dir = tempDir();
    {
      using store = open(dir.path, 'boot-1');
      store.putClaim(storedClaim({ identity: identity('a'), podUids: ['p'], devices: [used] }));
    }
    using store = open(dir.path, 'boot-2');
    expect(await end(store, () => Promise.reject(new Error('read-only file system')))).toBe(1);
    expect(store.claim('uid-a')?.state).toBe('preparing');
  });
});
