import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type ClaimRecords, RecordFiles } from '../../../../../src/framework/metadata/files/claim-records.ts';
import { contentOf } from '../../../../../src/framework/metadata/files/claim-state.ts';
import { ClaimStates } from '../../../../../src/framework/metadata/files/claim-states.ts';
import { tempDir } from '../../../../doubles/temp-dir.ts';

const claim = { namespace: 'default', name: 'nic', uid: 'uid-1' };
const stateOf = (podUid: string) => ({ claim, podUid, layouts: [], requests: {}, servedBy: null });

describe('the record of a claim', () => {
  it('is parsed again only after a change, and cannot be changed by readers', () => {
    using dir = tempDir();
    const states = new ClaimStates(new RecordFiles(dir.path), dir.path);
    states.write(stateOf('pod-1'));
    const first = states.read(claim);
    expect(first).toEqual(stateOf('pod-1'));
    expect(states.read(claim)).toBe(first);
    expect(() => first?.layouts.push('v1')).toThrow(TypeError);
    states.write(stateOf('pod-2'));
    expect(states.read(claim)).toEqual(stateOf('pod-2'));
  });

  it('is parsed once with 128 other claims on the node', () => {
    using dir = tempDir();
    const texts = new Map<string, string>();
    const records: ClaimRecords = {
      read: (name) => texts.get(name),
      write: (name, text) => texts.set(name, text),
      remove: (name) => texts.delete(name),
      names: () => [...texts.keys()],
      locate: (name) => name,
    };
    const written = new ClaimStates(records, dir.path);
    for (let n = 0; n < 129; n++) written.write({ ...stateOf('pod-1'), claim: { ...claim, name: `nic-${n}` } });
    const states = new ClaimStates(records, dir.path);
    const first = new Set(states.readable());
    expect(first.size).toBe(129);
    expect(states.readable().filter((state) => !first.has(state))).toEqual([]);
  });

  it('is rejected in the directory of another claim, even if it was read in its own directory before', () => {
    using dir = tempDir();
    const states = new ClaimStates(new RecordFiles(dir.path), dir.path);
    states.write(stateOf('pod-1'));
    const other = { ...claim, name: 'other' };
    states.write({ ...stateOf('pod-1'), claim: other });
    const files = ['default_nic', 'default_other'].map((each) =>
      join(dir.path, 'dra-device-metadata', each, 'claim.json'),
    );
    expect(states.read(other)?.claim).toEqual(other);
    const [, text] = files.map((path) => readFileSync(path, 'utf8'));
    writeFileSync(files[0]!, text!);
    expect(() => states.read(claim)).toThrow(expect.objectContaining({ code: 'metadata-malformed' }));
  });
});

it('contentOf copies the attributes of devices only for layouts that show them', () => {
  let reads = 0;
  const device = {
    pool: 'node-1',
    name: 'dev-1',
    given: { mtu: { int: 1400 } },
    get attributes() {
      reads++;
      return { mtu: { int: 1500 }, vlan: { int: 5 } };
    },
  };
  const state = { ...stateOf('pod-1'), requests: { vf: { name: 'vf', devices: [device], generation: 0 } } };
  const content = contentOf(state, 'vf', 'example.com');
  expect([content.document, reads]).toEqual([undefined, 0]);
  expect(content.published).toEqual([
    { pool: 'node-1', name: 'dev-1', attributes: { mtu: { int: 1400 }, vlan: { int: 5 } } },
  ]);
});
