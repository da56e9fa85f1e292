import { describe, expect, it } from 'vitest';
import { DriftRecord, DriftReport, podDriftOf } from '../../../../src/driver/drift/index.ts';
import type { StoredClaim, StoredDevice } from '../../../../src/driver/model/index.ts';
import type { VfState } from '../../../../src/driver/vf/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';

const device = {
  pciAddress: '0000:3b:02.1',
  pool: 'p',
  name: 'dev-1',
  request: 'r',
  config: { addresses: ['192.0.2.10/24', '2001:db8::10/64'] },
} as StoredDevice;
const claim = { identity: { uid: 'u', namespace: 'default', name: 'c' }, podUids: ['pod'] } as StoredClaim;
const state: VfState = { interfaceName: 'net1', hardwareAddress: undefined, ips: ['192.0.2.10/24'], tentative: false };

function report() {
  const record = new DriftRecord();
  const events: string[] = [];
  const note = (reason: string) => (_claim: object, _pods: string[], _device: object, what: string) => {
    events.push(`${reason} ${what}`);
  };
  const reporter = new DriftReport({
    record,
    events: {
      duplicateAddresses: note('DuplicateAddress'),
      settingsChanged: note('SettingsChanged'),
      settingsLost: note('SettingsLost'),
      settingsRestored: note('SettingsRestored'),
    },
    onDrift: () => undefined,
    onCondition: () => undefined,
    logger: new RecordingLogger(),
  });
  return { record, events, read: (found: VfState) => reporter.podCompared(claim, device, podDriftOf(device, found)) };
}

describe('DriftReport for an address that another host has', () => {
  it('reports the address and the MAC of the other host until the conflict ends', () => {
    const { record, events, read } = report();
    const shared = {
      ...state,
      duplicates: ['2001:db8::10/64'],
      conflicts: new Map([['192.0.2.10/24', '02:00:00:00:00:99']]),
    };
    read(shared);
    read(shared);
    const what =
      'duplicateAddresses is 2001:db8::10/64, 192.0.2.10/24 (02:00:00:00:00:99) instead of none: another host of the network has the same address';
    expect(events).toEqual([expect.stringContaining(`DuplicateAddress ${what}`)]);
    expect(record.conditionOf('u', 'dev-1')).toMatchObject({
      type: 'Configured',
      status: 'False',
      reason: 'DuplicateAddress',
      message: expect.stringContaining(what),
    });
    read({ ...state, ips: ['192.0.2.10/24', '2001:db8::10/64'] });
    expect(record.conditionOf('u', 'dev-1')).toMatchObject({ status: 'True' });
  });

  it('still reports the address if the pod has removed it from the interface', () => {
    const { record, events, read } = report();
    read({ ...state, ips: [], duplicates: ['2001:db8::10/64'] });
    expect(events).toEqual([
      expect.stringContaining('SettingsChanged addresses is missing instead of 192.0.2.10/24'),
      expect.stringContaining('DuplicateAddress duplicateAddresses is 2001:db8::10/64 instead of none'),
    ]);
    expect(record.conditionOf('u', 'dev-1')).toMatchObject({ reason: 'SettingsChanged' });
  });
});
