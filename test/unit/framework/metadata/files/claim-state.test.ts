import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readClaimState, writeClaimState } from '../../../../../src/framework/metadata/files/claim-state.ts';
import { HeldDirectories } from '../../../../../src/framework/metadata/files/held-directories.ts';
import { tempDir } from '../../../../doubles/temp-dir.ts';

const claim = { namespace: 'default', name: 'nic', uid: 'uid-1' };
const stateOf = (podUid: string) => ({ claim, podUid, layouts: [], requests: {} });

describe('the record of a claim', () => {
  it('is parsed again only after a change, and readers cannot modify it', async () => {
    using dir = tempDir();
    using held = new HeldDirectories();
    await writeClaimState(dir.path, stateOf('pod-1'), held);
    const first = await readClaimState(dir.path, claim);
    expect(first).toEqual(stateOf('pod-1'));
    expect(await readClaimState(dir.path, claim)).toBe(first);
    expect(() => first?.layouts.push('v1')).toThrow(TypeError);
    await writeClaimState(dir.path, stateOf('pod-2'), held);
    expect(await readClaimState(dir.path, claim)).toEqual(stateOf('pod-2'));
  });

  it('is refused in the directory of another claim, also when it was read in its own before', async () => {
    using dir = tempDir();
    using held = new HeldDirectories();
    await writeClaimState(dir.path, stateOf('pod-1'), held);
    const other = { ...claim, name: 'other' };
    await writeClaimState(dir.path, { ...stateOf('pod-1'), claim: other }, held);
    const files = ['default_nic', 'default_other'].map((each) =>
      join(dir.path, 'dra-device-metadata', each, 'claim.json'),
    );
    expect((await readClaimState(dir.path, other))?.claim).toEqual(other);
    const [, text] = files.map((path) => readFileSync(path, 'utf8'));
    writeFileSync(files[0]!, text!);
    await expect(readClaimState(dir.path, claim)).rejects.toMatchObject({ code: 'metadata-malformed' });
  });
});
