import fc from 'fast-check';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { codePoint } from '../../doubles/code-point.ts';
import { fuzzPrograms } from '../../fuzz/c-programs.ts';
import { buildTimeoutMs, checkedTool } from './checked-tool.ts';
import { ContainerRoot, runProgram } from './container-root.ts';

// Programs with sanitizers are slow on a machine with other work.
vi.setConfig({ testTimeout: 60_000 });

let built: ReturnType<typeof checkedTool>;
beforeAll(() => {
  built = checkedTool();
}, buildTimeoutMs);

describe('the parsers of the C programs', () => {
  it('survive malformed inputs', async () => {
    const seed = fc.sample(fc.nat(), 1)[0] ?? 0;
    // `npm run fuzz` runs longer.
    const { counts, failure } = await fuzzPrograms(built, 10_000, seed);
    expect(failure, `seed ${seed}`).toBeUndefined();
    // All paths through the code were taken, each often.
    for (const count of Object.values(counts)) expect(count).toBeGreaterThan(300);
  }, 180_000);

  /** JSON as this tool takes it: no NUL in a text, at most as deep as a document is. */
  const text = fc.string({ unit: codePoint }).map((each) => each.toWellFormed().replaceAll('\0', ''));
  const json = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 5 },
      fc.constantFrom(null, true, false),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.maxSafeInteger(),
      text,
      fc.array(tie('value'), { maxLength: 4 }),
      fc.dictionary(
        text.filter((key) => key !== '__proto__'),
        tie('value'),
        { maxKeys: 4 },
      ),
    ),
  })).value;

  it('accept what JSON.parse accepts', () => {
    using root = new ContainerRoot();
    fc.assert(
      fc.property(json, fc.constantFrom(0, 2, '\t'), (value, indent) => {
        const document = {
          apiVersion: 'metadata.resource.k8s.io/v1beta1',
          kind: 'DeviceMetadata',
          metadata: { name: 'nic', generation: 1 },
          requests: [{ name: 'vf', devices: [] }],
          value: [value],
        };
        const path = root.write('document.json', JSON.stringify(document, null, indent));
        const { stdout, exitCode } = runProgram(built.tool, ['--path', path, 'get', 'nic/vf', '.value']);
        expect({ exitCode, value: JSON.parse(stdout) }).toEqual({
          exitCode: 0,
          value: JSON.parse(JSON.stringify([value])),
        });
      }),
      { numRuns: 60 },
    );
  });

  it('reject what JSON.parse rejects', () => {
    using root = new ContainerRoot();
    const whole = JSON.stringify({
      claims: [{ claimName: 'nic', requests: [{ requestName: 'vf', attributes: { a: 'x\\"\u00e9', n: '-1.5e+3' } }] }],
    });
    const change = fc.tuple(
      fc.nat(whole.length - 1),
      fc.constantFrom('', '"', '{', ']', ',', ':', '\\', '0', '-', 't'),
    );
    fc.assert(
      fc.property(change, ([at, token]) => {
        const changed = whole.slice(0, at) + token + whole.slice(at + 1);
        const path = root.write('document.json', changed);
        const { exitCode } = runProgram(built.tool, ['--path', path, 'list']);
        let isJson = true;
        try {
          JSON.parse(changed);
        } catch {
          isJson = false;
        }
        // What is JSON can still be no metadata; what is none is malformed.
        if (isJson) expect([0, 1, 3]).toContain(exitCode);
        else expect(exitCode, changed).toBe(3);
      }),
      { numRuns: 60 },
    );
  });
});
