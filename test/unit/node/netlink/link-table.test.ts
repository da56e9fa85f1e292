import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { encodeString } from '../../../../src/node/netlink/attributes.ts';
import { encodeLink, LinkAttribute } from '../../../../src/node/netlink/link.ts';
import { completeTable, connectKernel } from '../../../doubles/netlink-kernel.ts';

const addressOf = (vf: number) => `0000:3b:${(vf >> 3).toString(16).padStart(2, '0')}.${vf & 7}`;
const macOf = (vf: number) =>
  `02:00:00:00:${(vf >> 8).toString(16).padStart(2, '0')}:${(vf & 255).toString(16).padStart(2, '0')}`;

/** Links of VFs, each with another kind of mark than its neighbours, and one that is no VF's. */
function table(vfs: number) {
  const payloads = Array.from({ length: vfs }, (_, vf) => {
    const mark = [
      { type: LinkAttribute.parentDevName, value: encodeString(addressOf(vf)) },
      { type: LinkAttribute.alias, value: encodeString(`vf-${vf}`) },
      { type: LinkAttribute.address, value: Buffer.from(macOf(vf).replaceAll(':', ''), 'hex') },
    ][vf % 3]!;
    const name = { type: LinkAttribute.name, value: encodeString(`eth${vf}`) };
    return Buffer.concat(encodeLink(vf + 1, [name, mark]));
  });
  const other = Buffer.concat(encodeLink(9_999, [{ type: LinkAttribute.name, value: encodeString(addressOf(0)) }]));
  return connectKernel((seq) => completeTable(seq, 16, [...payloads, other]));
}

const identities = (vfs: number[]) =>
  vfs.map((vf) => ({ pciAddress: addressOf(vf), alias: `vf-${vf}`, hardwareAddress: macOf(vf) }));

describe('LinkTable.candidates', () => {
  it.each([1, 5, 6, 200])('returns the links of %i VFs by address, alias and MAC', async (count) => {
    using connection = table(300);
    const wanted = Array.from({ length: count }, (_, vf) => vf + 50);
    const found = (await connection.linkTable()).candidates(identities(wanted));
    expect(found.map(({ name }) => name)).toEqual(wanted.map((vf) => `eth${vf}`));
  });

  it('searches each link message a few times, not once for each VF', async () => {
    using connection = table(300);
    const links = await connection.linkTable();
    const search = vi.spyOn(Buffer.prototype, 'includes');
    onTestFinished(() => search.mockRestore());
    expect(links.candidates(identities(Array.from({ length: 300 }, (_, vf) => vf)))).toHaveLength(300);
    expect(search.mock.calls.length).toBeLessThanOrEqual(301 * 16);
  });

  it('fails on a link message whose attributes are malformed', async () => {
    const broken = Buffer.concat([...encodeLink(1, []), Buffer.of(9, 0, 3, 0)]);
    using connection = connectKernel((seq) => completeTable(seq, 16, [broken]));
    const links = await connection.linkTable();
    expect(() => links.candidates(identities(Array.from({ length: 20 }, (_, vf) => vf)))).toThrow(
      expect.objectContaining({ code: 'netlink-malformed' }),
    );
  });
});
