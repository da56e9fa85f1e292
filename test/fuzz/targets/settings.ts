import fc from 'fast-check';
import { closedFields } from '../../../src/driver/model/index.ts';
import { layoutNames } from '../../../src/framework/metadata/index.ts';
import { namesAmong, parseDriverName, parseSeconds, parseSimulation } from '../../../src/instance/parse-flags.ts';
import { expectThat, type FuzzTarget, isAnnounced, utf8 } from '../target.ts';

const checks: readonly ((text: string) => void)[] = [
  (text) => {
    const { pfs, vfsPerPf } = parseSimulation(text);
    expectThat(Number.isInteger(pfs) && pfs >= 1 && pfs <= 8, `${pfs} PFs`);
    expectThat(Number.isInteger(vfsPerPf) && vfsPerPf >= 1 && vfsPerPf <= 128, `${vfsPerPf} VFs`);
  },
  (text) => {
    const names = namesAmong(layoutNames)(text);
    expectThat(names.length > 0 && new Set(names).size === names.length, 'layouts twice, or none');
    expectThat(
      names.every((name) => layoutNames.includes(name)),
      'a layout that there is not',
    );
  },
  (text) => void namesAmong(closedFields, { mayBeEmpty: true })(text),
  (text) => expectThat(parseSeconds(text) >= 0 && parseSeconds(text) < Infinity, 'no number of seconds'),
  (text) => {
    const name = parseDriverName(text);
    expectThat(name === text && name.length <= 63 && !/[/\0\s]|\.\./.test(name), `driver name ${name}`);
  },
];

const number = fc.oneof(fc.nat(9), fc.nat(200), fc.double()).map(String);
const name = fc.constantFrom(
  ...layoutNames,
  ...closedFields,
  'sriov.netdra.dev',
  '',
  ' ',
  '*',
  'A',
  '-',
  '..',
  'x'.repeat(64),
);

/** Values of flags. */
export const target: FuzzTarget = {
  name: 'settings',
  errors: [],
  generated: fc
    .oneof(
      number,
      fc.tuple(number, number).map((pair) => pair.join('x')),
      fc.array(name, { maxLength: 4 }).map(String),
    )
    .map((text) => Buffer.from(text)),
  dictionary: [',', ' ', 'x', '..', '__proto__', 'constructor', 'vf.trust', 'a-', '\n'],
  seeds: () =>
    ['8', '2x4', '2.5', 'v1,kep', 'attributes-json, downward-api', 'driver,vf.trust', 'sriov.netdra.dev', 'a-b.c'].map(
      (text) => Buffer.from(text),
    ),
  run(input) {
    const text = utf8(input);
    for (const check of checks) {
      try {
        check(text);
      } catch (error) {
        // Each value is valid for at most one flag: the others refuse it with a plain error.
        if (!isAnnounced(error, [Error])) throw error;
      }
    }
  },
};
