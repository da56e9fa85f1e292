import { expect, it } from 'vitest';
import { ClaimProgress } from '../../../../src/driver/sandbox/claim-progress.ts';
import { serveInTurn } from '../../../../src/driver/sandbox/serve-in-turn.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { turns } from './fake-networks.ts';
import { claim } from './fake-work.ts';

it('serveInTurn fails only after the work on all claims has ended', async () => {
  const claims = ['a', 'b'].map((name) => claim(name));
  const [aborted, ended] = [Promise.reject(new Error('aborted')), Promise.withResolvers<void>()];
  let isOver = false;
  const served = serveInTurn(claims, {
    all: claims,
    clock: new ManualClock(),
    progress: new ClaimProgress(),
    isFollowed: () => true,
    read: async () => undefined,
    serve: async ({ identity }, waits) => {
      waits();
      await (identity.name === 'a' ? aborted : ended.promise);
    },
  }).finally(() => (isOver = true));
  served.catch(() => undefined);
  await turns();
  expect(isOver).toBe(false);
  ended.resolve();
  await expect(served).rejects.toThrow('aborted');
});
