import { beforeEach, describe, expect, it } from 'vitest';
import { fingerprintOf } from '../../../../src/driver/claims/index.ts';
import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import { LostLeases } from '../../../../src/driver/recovery/index.ts';
import { KubeError } from '../../../../src/framework/kube/index.ts';
import type { ClaimObject } from '../../../../src/framework/kubeletplugin/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { storedClaim, storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';

const { signal } = new AbortController();
const allocation = { devices: { results: [], config: [] } };
const claimOf = (uid: string, state: 'prepared' | 'unpreparing' = 'prepared') => {
  const config = { addressPool: { name: 'lan' }, addresses: [`192.0.2.${uid}/24`] };
  const identity = { namespace: 'apps', name: `claim-${uid}`, uid };
  const devices = [storedDevice({ config }), storedDevice()];
  const fingerprint = fingerprintOf('sriov.netdra.dev', { status: { allocation } });
  return storedClaim({ identity, state, devices, podUids: [`pod-${uid}`], allocation: fingerprint });
};

const objectOf = (uid: string, status: ClaimObject['status'] = {}): ClaimObject => ({
  metadata: { uid },
  spec: {},
  status: { allocation, reservedFor: [{ resource: 'pods', name: 'app', uid: `pod-${uid}` }], ...status },
});

describe('LostLeases', () => {
  let claims: StoredClaim[];
  /** UIDs of the claims that have their leases. */
  let leased: Set<string>;
  let read: string[];
  let prepared: string[];
  /** UID of a claim that cannot be prepared again. */
  let conflicting: string;
  /** How the API server has claims that are not as they were prepared, by UID. */
  let changed: Map<string, ClaimObject | undefined>;
  let logger: RecordingLogger;
  let leases: LostLeases;

  beforeEach(() => {
    claims = [claimOf('1'), storedClaim(), claimOf('2'), claimOf('3', 'unpreparing'), claimOf('4')];
    leased = new Set(['1', '2', '4']);
    read = [];
    prepared = [];
    changed = new Map();
    conflicting = '4';
    logger = new RecordingLogger();
    leases = new LostLeases({
      driver: 'sriov.netdra.dev',
      claims: {
        readClaim: async (_, name) => {
          const uid = name.replace('claim-', '');
          const claim = changed.has(uid) ? changed.get(uid) : objectOf(uid);
          if (claim === undefined) throw new KubeError('api-not-found', `${name} not found`);
          return claim;
        },
      },
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
          if (uid === conflicting) throw new Error('another key has the address');
          leased.add(uid);
          return true;
        },
      },
      logger,
    });
  });

  it('reads the leases of one prepared claim per sweep while no lease is lost', async () => {
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

  it('prepares all other claims again if preparing one claim fails', async () => {
    leased.clear();
    conflicting = '1';
    await expect(leases.sweep(signal)).rejects.toThrow('another key has the address');
    expect(prepared).toEqual(['1', '2', '4']);
  });

  it.each<[string, ClaimObject | undefined]>([
    ['was deleted', undefined],
    [
      'was replaced by another claim of the same name',
      objectOf('other', { reservedFor: [{ resource: 'pods', name: 'app', uid: 'pod-2' }] }),
    ],
    [
      'is reserved for the next pod',
      objectOf('2', { reservedFor: [{ resource: 'pods', name: 'next', uid: 'pod-next' }] }),
    ],
    [
      'was allocated again',
      objectOf('2', {
        allocation: {
          devices: {
            results: [],
            config: [{ source: 'FromClaim', opaque: { driver: 'sriov.netdra.dev', parameters: { mtu: 1400 } } }],
          },
        },
      }),
    ],
  ])('does not touch a claim with lost leases that %s, because its containers may still run', async (_, found) => {
    leased.clear();
    changed.set('2', found);
    conflicting = 'none';
    for (let sweep = 0; sweep < 2; sweep++) await leases.sweep(signal);
    expect([read, prepared]).toEqual([expect.arrayContaining(['2']), ['1', '4']]);
  });
});
