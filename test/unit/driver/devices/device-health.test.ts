import { describe, expect, it } from 'vitest';
import { deviceHealth } from '../../../../src/driver/devices/device-health.ts';
import type { StoredClaim } from '../../../../src/driver/state/index.ts';

/** A claim that holds devices of a pool. */
function claimOf(pool: string, ...names: string[]): StoredClaim {
  const identity = { namespace: 'default', name: 'c', uid: 'u' };
  const devices = names.map((name) => ({ pool, name }) as StoredClaim['devices'][number]);
  return { identity, podUids: [], state: 'prepared', devices };
}

describe('deviceHealth', () => {
  it('has every device that was found, whether a claim holds it or not', () => {
    expect(deviceHealth('node-1', ['a', 'b'], [claimOf('node-1', 'b')])).toEqual([
      { poolName: 'node-1', deviceName: 'a', health: 'healthy' },
      { poolName: 'node-1', deviceName: 'b', health: 'healthy' },
    ]);
  });

  it('says of a device that hangs which write does not return, and what to do', () => {
    const path = '/sys/bus/pci/devices/0000:3b:02.1/driver/unbind';
    const hung = [{ device: '0000:3b:02.1', name: 'b', path, text: '0000:3b:02.1' }];
    expect(deviceHealth('node-1', ['a', 'b'], [claimOf('node-1', 'b')], hung)).toEqual([
      { poolName: 'node-1', deviceName: 'a', health: 'healthy' },
      {
        poolName: 'node-1',
        deviceName: 'b',
        health: 'unhealthy',
        message: expect.stringMatching(`^the kernel does not return from a write to ${path}: end the process`),
      },
    ]);
  });

  it('says once, and why, that a device is unhealthy that is gone while claims hold it', () => {
    const claims = [claimOf('node-1', 'gone', 'gone'), claimOf('other-pool', 'not-ours')];
    expect(deviceHealth('node-1', [], claims)).toEqual([
      {
        poolName: 'node-1',
        deviceName: 'gone',
        health: 'unhealthy',
        message: expect.stringContaining('not found on the node any more'),
      },
    ]);
  });
});
