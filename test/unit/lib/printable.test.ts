import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatTable } from '../../../src/cli/terminal.ts';
import { formatExactJson } from '../../../src/framework/metadata/document/json-stream.ts';
import { layoutNames, placeOf } from '../../../src/framework/metadata/layouts/layout.ts';
import { v1 } from '../../../src/framework/metadata/layouts/layout-v1.ts';
import { layouts } from '../../../src/framework/metadata/layouts/layouts.ts';
import { explain, NetdraError } from '../../../src/lib/errors.ts';
import { printable, printableStyled } from '../../../src/lib/printable.ts';
import { findFailure } from '../../../src/node/cni/failure.ts';
import { codePoint } from '../../doubles/code-point.ts';

const hostile = '\u001b]0;pwn\u0007\u001b[2Jx\u009b31m\u202etxt.exe';

describe('untrusted text', () => {
  it('contains no terminal control characters, and is limited in length', () => {
    expect(printable(hostile)).toBe('\\u001b]0;pwn\\u0007\\u001b[2Jx\\u009b31m\\u202etxt.exe');
    expect(printable('A'.repeat(900_000))).toBe(`${'A'.repeat(4096)}…`);
    expect(printable('ü 日本 😀')).toBe('ü 日本 😀');
    fc.assert(
      fc.property(fc.string({ unit: codePoint }), (text) => {
        expect(printable(text)).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}]/u);
        expect(printableStyled(text.replaceAll('\u001b', ''))).not.toMatch(/[^\P{Cc}\n]/u);
      }),
    );
  });

  it("is escaped without removing the tool's own colours and line breaks, and leaves JSON valid", () => {
    expect(printableStyled('\u001b[31mred\u001b[39m\n\u001b[2J')).toBe('\u001b[31mred\u001b[39m\n\\u001b[2J');
    const value = { name: `${hostile}\u{e0001}` };
    expect(JSON.parse(printableStyled(formatExactJson(value)))).toEqual(value);
  });

  it('is escaped in tables, errors and CNI plugin messages', () => {
    const terminal = { write: () => undefined, style: (_: string, text: string) => text };
    expect(formatTable(terminal, ['IF'], [[hostile]])).not.toContain('\u001b');
    expect(explain(new NetdraError('x', `interface ${hostile}`))).not.toContain('\u001b');
    const stdout = JSON.stringify({ code: 100, msg: `${hostile}${'A'.repeat(900_000)}`, details: hostile });
    const outcome = { exitCode: 1, endedBy: null, stdout, stderr: '', overflowed: false };
    const call = { network: 'n', plugin: 'p', command: 'ADD', path: '/x', target: 't' } as const;
    const error = findFailure(outcome, call);
    expect(error?.message).not.toContain('\u001b');
    expect(error?.message.length).toBeLessThan(3_000);
    expect(error?.pluginMessage?.length).toBeLessThan(2_000);
  });

  it.each(layoutNames)('cannot make a path outside the directories of layout %s', (name) => {
    const content = { claim: { namespace: 't', name: 'c', uid: 'u' }, request: 'r', driver: 'd', podUid: 'p' };
    for (const podClaimName of ['../../../../../../etc/cron.d', '..', 'a/b', 'a\0b']) {
      expect(() => layouts[name].containerPaths(placeOf({ ...content, podClaimName })), podClaimName).toThrow(
        /^pod claim name .* cannot be part of a path$/,
      );
    }
    expect(v1.containerPaths(placeOf({ ...content, podClaimName: '' }))[0]).toContain('/resourceclaims/c/');
  });
});
