import { beforeEach, describe, expect, it } from 'vitest';
import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import { LostLeases } from '../../../../src/driver/recovery/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { storedClaim, storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';

const { signal } = new AbortController();
const claimOf = (uid: string, state: 'prepared' | 'unpreparing' = 'prepared') => {
  const config = { addressPool: { name: 'lan' }, addresses: [`192.0.2.${uid}/24`] };
  const identity = { namespace: 'apps', name: `claim-${uid}`, uid };
  return storedClaim({ identity, state, devices: [storedDevice({ config }), storedDevice()] });
};

describe('LostLeases', () => {
  let claims: StoredClaim[];
  /** UIDs of the claims that have their leases. */
  let leased: Set<string>;
  let read: string[];
  let prepared: string[];
  let logger: RecordingLogger;
  let leases: LostLeases;

  beforeEach(() => {
    claims = [claimOf('1'), storedClaim(), claimOf('2'), claimOf('3', 'unpreparing'), claimOf('4')];
    leased = new Set(['1', '2', '4']);
    read = [];
    prepared = [];
    logger = new RecordingLogger();
    leases = new LostLeases({
      store: storedClaims(() => claims),
      addressPools: {
        areLeased: async (pool, addresses, uid) => {
          expect([pool, addresses]).toEqual(['lan', [`192.0.2.${uid}/24`]]);
          read.push(uid);
          return leased.has(uid);
        },
      },
      helper: {
        prepareAgain: async ({ uid }, isDue) => {
          if (!(await isDue(signal))) return false;
          prepared.push(uid);
          if (uid === '4') throw new Error('another key has the address');
          leased.add(uid);
          return true;
        },
      },
      logger,
    });
  });

  it('reads the leases of one prepared claim per sweep, in turn, while no lease is lost', async () => {
    for (let sweep = 0; sweep < 4; sweep++) await leases.sweep(signal);
    expect(read).toEqual(['1', '2', '4', '1']);
    expect(prepared).toEqual([]);
  });

  it('restores one lost lease of 64 claims within five sweeps', async () => {
    claims = Array.from({ length: 64 }, (_, index) => claimOf(String(index + 100)));
    leased = new Set(claims.map(({ identity }) => identity.uid));
    leased.delete('163');
    for (let sweep = 0; sweep < 4; sweep++) await leases.sweep(signal);
    expect(read).toHaveLength(52);
    await leases.sweep(signal);
    expect(prepared).toEqual(['163']);
  });

  it('prepares all claims with lost leases again', async () => {
    leased.clear();
    await expect(leases.sweep(signal)).rejects.toThrow('another key has the address');
    expect(prepared).toEqual(['1', '2', '4']);
    expect(logger.lines.map(({ fields }) => fields.claim)).toEqual(['apps/claim-1', 'apps/claim-2']);
    await leases.sweep(signal);
    expect(prepared).toHaveLength(3);
  });
});
