import { describe, expect, it } from 'vitest';
import { SandboxError, type StoredDevice } from '../../../../src/driver/model/index.ts';
import { restore } from '../../../../src/driver/vf/index.ts';
import { defined } from '../../../../src/lib/defined.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';

const device = storedDevice({
  pciAddress: '0000:01:02.0',
  name: '0000-01-02-0',
  request: 'nic',
  config: { macAddress: '02:11:22:33:44:55' },
});
const link = { name: 'ens1v0', hardwareAddress: '3c:fd:fe:00:01:00', mtuBytes: 1500, up: false };

const attachment = { podUid: 'p', podNamespace: 'apps', podName: 'web', sandboxId: 's', netnsPath: '/run/netns/s' };

/** The calls made for a VF whose state from before its attachment cannot be restored. */
async function outcomeOf(before: StoredDevice['before'], refusal?: Error) {
  const calls: string[] = [];
  const detach = async () => {
    calls.push('detach');
    throw new SandboxError('restore-incomplete', 'cannot restore hardwareAddress');
  };
  const forget = () => void calls.push('forget');
  const attachments = { detach, forget };
  const control = {
    restore: async () => {
      calls.push('restore');
      if (refusal !== undefined) throw refusal;
    },
  };
  const restored = restore({ attachments, control }, 'uid', { ...device, attachment, ...defined({ before }) });
  const outcome = await restored.then(
    () => 'restored',
    (error: Error) => error.message,
  );
  return { calls, outcome };
}

describe('restore', () => {
  // Found by the simulation: the end of its sandbox gave the VF the claim's MAC while unprepare was not over.
  // And: the PF refuses the claim's MAC once the VF has its own again, and the VF was never offered again.
  it("does not reapply the claim's settings after restoring the snapshot", async () => {
    expect(await outcomeOf({ vf: {}, link })).toEqual({ calls: ['detach', 'restore', 'forget'], outcome: 'restored' });
  });

  it('keeps the stored attachment of a VF that could be neither detached nor restored', async () => {
    expect(await outcomeOf({ vf: {}, link }, new Error('the PF refuses'))).toEqual({
      calls: ['detach', 'restore'],
      outcome: 'the PF refuses',
    });
  });

  it('tries to detach the VF again after a failed restore if the snapshot has no interface', async () => {
    expect(await outcomeOf({ vf: {} })).toEqual({
      calls: ['detach', 'restore', 'detach'],
      outcome: 'cannot restore hardwareAddress',
    });
  });
});
