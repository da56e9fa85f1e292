import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RecordFiles } from '../../../../../src/framework/metadata/files/claim-records.ts';
import { ClaimStates } from '../../../../../src/framework/metadata/files/claim-states.ts';
import { HeldDirectories } from '../../../../../src/framework/metadata/files/held-directories.ts';
import { tempDir } from '../../../../doubles/temp-dir.ts';

const claim = { namespace: 'default', name: 'nic', uid: 'uid-1' };
const stateOf = (podUid: string) => ({ claim, podUid, layouts: [], requests: {} });

describe('the record of a claim', () => {
  it('is parsed again only after a change, and readers cannot modify it', async () => {
    using dir = tempDir();
    using held = new HeldDirectories();
    const states = new ClaimStates(new RecordFiles(dir.path), dir.path);
    await states.write(stateOf('pod-1'), held);
    const first = await states.read(claim);
    expect(first).toEqual(stateOf('pod-1'));
    expect(await states.read(claim)).toBe(first);
    expect(() => first?.layouts.push('v1')).toThrow(TypeError);
    await states.write(stateOf('pod-2'), held);
    expect(await states.read(claim)).toEqual(stateOf('pod-2'));
  });

  it('is refused in the directory of another claim, also when it was read in its own before', async () => {
    using dir = tempDir();
    using held = new HeldDirectories();
    const states = new ClaimStates(new RecordFiles(dir.path), dir.path);
    await states.write(stateOf('pod-1'), held);
    const other = { ...claim, name: 'other' };
    await states.write({ ...stateOf('pod-1'), claim: other }, held);
    const files = ['default_nic', 'default_other'].map((each) =>
      join(dir.path, 'dra-device-metadata', each, 'claim.json'),
    );
    expect((await states.read(other))?.claim).toEqual(other);
    const [, text] = files.map((path) => readFileSync(path, 'utf8'));
    writeFileSync(files[0]!, text!);
    await expect(states.read(claim)).rejects.toMatchObject({ code: 'metadata-malformed' });
  });
});
