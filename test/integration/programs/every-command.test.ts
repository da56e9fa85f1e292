import { describe, expect, it } from 'vitest';
import { allLayouts, vf } from './container-root.ts';
import { nicDocument, nicFile, root, run, useToolBench } from './tool-bench.ts';

useToolBench();

/** Each command as it is used, about the only request that there is. `wait` says nothing; of the others each has the PCI addresses. */
const commands = {
  list: ['list'],
  get: ['get', 'nic/vf'],
  env: ['env', 'nic/vf'],
  'eal-args': ['eal-args', 'nic/vf'],
  wait: ['wait', 'nic/vf', '--timeout', '0'],
  exec: ['exec', 'nic/vf', '--', 'echo', '{eal-args}'],
} as const;
type Command = keyof typeof commands;

const object = (version: string, pciAddress: string) =>
  JSON.stringify(nicDocument({ attributes: { 'resource.kubernetes.io/pciBusID': { string: pciAddress } } }, version));
const unknown = '{"kind":"DeviceMetadata","apiVersion":"metadata.resource.k8s.io/v3","shape":["another"]}';
const addressOf = (index: number) => `0000:${(0x10 + index).toString(16)}:00.1`;

/** What there is in the container, and the PCI addresses that are found; or the code with which all commands end. */
const situations: [string, () => unknown, { addresses: string[]; layout?: string } | { exitCode: number }][] = [
  ...allLayouts.map((layout): (typeof situations)[number] => [
    `layout ${layout}`,
    () => root.prepare({ claim: 'nic', devices: [vf(1), vf(2)], layouts: [layout] }),
    { addresses: ['0000:3b:02.1', '0000:3b:02.2'], layout },
  ]),
  ...['v1beta1', 'v1alpha1'].map((version): (typeof situations)[number] => [
    `version ${version} alone`,
    () => root.write(nicFile, object(version, '0000:3b:02.1')),
    { addresses: ['0000:3b:02.1'] },
  ]),
  [
    'an unknown version before a known one',
    () => root.write(nicFile, unknown + object('v1alpha1', '0000:3b:02.1')),
    { addresses: ['0000:3b:02.1'] },
  ],
  ['unknown versions only', () => root.write(nicFile, unknown), { exitCode: 3 }],
  [
    'files of several drivers',
    async () => {
      await root.prepare({ claim: 'nic', devices: [vf(1)], driver: 'b.example' });
      await root.prepare({ claim: 'nic', devices: [vf(2)], driver: 'a.example' });
    },
    { addresses: ['0000:3b:02.2', '0000:3b:02.1'] },
  ],
  ['no file', () => root.prepare({ claim: 'nic' }), { exitCode: 1 }],
  [
    'a hundred devices',
    () =>
      root.prepare({
        claim: 'nic',
        devices: Array.from({ length: 100 }, (_unused, index) => ({
          attributes: { 'resource.kubernetes.io/pciBusID': { string: addressOf(index) } },
        })),
      }),
    { addresses: Array.from({ length: 100 }, (_unused, index) => addressOf(index)) },
  ],
];

describe.each(situations)('%s', (_what, prepare, expected) => {
  it.each(Object.keys(commands) as Command[])('%s', async (command) => {
    await prepare();
    const layout = 'layout' in expected ? ['--layout', expected.layout ?? ''] : [];
    const { exitCode, stdout, stderr } = run(...layout, ...commands[command]);
    if ('exitCode' in expected) {
      // Only `wait` expects a file that does not exist yet.
      const code = command === 'wait' && expected.exitCode === 1 ? 4 : expected.exitCode;
      expect({ exitCode, stdout }).toEqual({ exitCode: code, stdout: '' });
      expect(stderr).toMatch(/^netdra-metadata: .*\n$/);
      return;
    }
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    const found = [...new Set(stdout.match(/[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]/g) ?? [])];
    expect(found).toEqual(command === 'wait' ? [] : expected.addresses);
  });
});
