import { expect, it } from 'vitest';
import { KeyedMutex } from '../../../src/keyed-mutex.ts';
import { ClaimWork, type ClaimWorkOptions } from '../../../src/sandbox/claim-work.ts';
import type { SandboxPlace, StoredClaim } from '../../../src/state/index.ts';

it('does not take a VF out of the next sandbox of its pod for a sandbox that is gone', async () => {
  const place = (sandboxId: string): SandboxPlace => ({
    sandboxId,
    podUid: 'pod',
    netnsPath: `/var/run/netns/${sandboxId}`,
  });
  const device = { pciAddress: '0000:3b:02.1', pool: 'n', name: 'vf-1', request: 'vf', config: {} };
  const claim: StoredClaim = {
    identity: { namespace: 'default', name: 'fast-net', uid: 'uid' },
    ...{ podUids: ['pod'], state: 'prepared', devices: [{ ...device, attachment: place('next') }] },
  };
  const withdrawn: string[] = [];
  const work = new ClaimWork({
    store: { claim: () => claim },
    locks: new KeyedMutex(),
    networks: { isGone: (path: string) => path === place('first').netnsPath },
    writer: { withdraw: async ({ name }: { name: string }) => void withdrawn.push(name) },
  } as unknown as ClaimWorkOptions);
  const serving = work.serve(claim.identity, place('first'), {} as never, new AbortController().signal);
  await expect(serving).rejects.toMatchObject({ code: 'netns-missing' });
  expect(withdrawn).toEqual([]);
});
