import { describe, expect, it } from 'vitest';
import { convertCniResult, decodeCniResult, parseCniResult } from '../../../../src/node/cni/result.ts';

const subject = { plugin: 'sriov', network: 'fast', cniVersion: '1.0.0' as const };
const parse = (text: string) => decodeCniResult(parseCniResult(text, subject), subject);
const parseObject = (value: object) => parse(JSON.stringify(value));

describe('parseCniResult', () => {
  it('parses a result of version 1.1.0', () => {
    const result = {
      cniVersion: '1.1.0',
      interfaces: [
        { name: 'br0', mac: '02:00:00:00:00:01', mtu: 1500 },
        {
          name: 'net1',
          mac: '02:00:00:00:AA:02',
          sandbox: '/run/netns/a',
          mtu: 9000,
          pciID: '0000:3b:02.1',
          socketPath: '/x',
        },
      ],
      ips: [
        { interface: 1, address: '10.1.2.3/24', gateway: '10.1.2.1' },
        { interface: 1, address: '2001:DB8:0:0::5/64', gateway: '2001:db8:0::1' },
      ],
      routes: [
        { dst: '0.0.0.0/0', gw: '10.1.2.1', mtu: 1400, advmss: 1360, priority: 50, table: 100, scope: 0, onlink: true },
        { dst: '2001:DB8::/32' },
      ],
      dns: { nameservers: ['10.1.2.1'], search: ['example.org'] },
    };
    expect(parseObject(result)).toEqual({
      cniVersion: '1.1.0',
      ips: [
        { address: '10.1.2.3/24', gateway: '10.1.2.1' },
        { address: '2001:db8::5/64', gateway: '2001:db8::1' },
      ],
      routes: [
        { dst: '0.0.0.0/0', gw: '10.1.2.1', mtu: 1400, advmss: 1360, priority: 50, table: 100, scope: 0 },
        { dst: '2001:db8::/32' },
      ],
      unused: ['interfaces', 'dns', 'routes.0.onlink'],
    });
  });

  it.each(['0.3.0', '0.3.1', '0.4.0'])('parses a result of version %s', (cniVersion) => {
    const result = {
      cniVersion,
      interfaces: [{ name: 'net1' }],
      ips: [{ version: '4', interface: 0, address: '10.1.2.3/24' }],
      dns: {},
    };
    expect(parseObject(result)).toEqual({
      cniVersion,
      ips: [{ address: '10.1.2.3/24' }],
      routes: [],
      unused: ['interfaces'],
    });
  });

  it('treats empty and null fields as absent', () => {
    const result = {
      ips: null,
      routes: [{ dst: '::/0', gw: '', priority: null }],
      dns: {},
      interfaces: [],
    };
    expect(parseObject(result)).toEqual({ cniVersion: '1.0.0', ips: [], routes: [{ dst: '::/0' }], unused: [] });
  });

  it.each([
    ['an empty output', '', 'it printed nothing'],
    ['a log line', 'added net1', 'it printed something that is not JSON'],
    ['a list', '[]', 'it is not a JSON object'],
    ['a result of version 0.2', '{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/24"}}', 'cniVersion: "0.2.0" is too old'],
    ['a future version', '{"cniVersion":"2.0.0"}', 'cniVersion: "2.0.0" is not known'],
    ['a version that is a number', '{"cniVersion":1}', 'cniVersion: 1 is not known'],
    [
      'a version that cannot be converted to text',
      '{"cniVersion":{"toString":null}}',
      'cniVersion: {"toString":null} is not',
    ],
    [
      'an address without a prefix',
      '{"ips":[{"address":"10.0.0.1"}]}',
      'ips.0.address: must be an address with prefix length, not "10.0.0.1"',
    ],
    [
      'a bad gateway',
      '{"ips":[{"address":"10.0.0.1/24","gateway":"10.0.0"}]}',
      'ips.0.gateway: must be an IP address, not "10.0.0"',
    ],
    ['a bad route', '{"routes":[{"dst":"default"}]}', 'routes.0.dst: must be an address with prefix length'],
    ['a priority of more than 32 bits', '{"routes":[{"dst":"::/0","priority":4294967296}]}', 'routes.0.priority: '],
    [
      'nesting that is too deep',
      `{"x":${'['.repeat(200_000)}${']'.repeat(200_000)}}`,
      'it is nested more than 64 levels deep',
    ],
  ])('rejects %s', (_what, text, problem) => {
    expect(() => parse(text)).toThrow(
      expect.objectContaining({
        code: 'cni-output-invalid',
        plugin: 'sriov',
        network: 'fast',
        message: expect.stringContaining(`plugin sriov of CNI network fast gave no valid result: ${problem}`),
      }),
    );
  });
});

describe('convertCniResult', () => {
  const ips = [{ address: '10.0.0.1/24' }, { address: '2001:db8::1/64' }];

  it('adds the IP version for plugins of a CNI version below 1.0, and drops it for newer versions', () => {
    const old = convertCniResult({ cniVersion: '1.0.0', ips, extra: 1 }, '0.4.0');
    expect(old).toEqual({
      cniVersion: '0.4.0',
      ips: [
        { address: '10.0.0.1/24', version: '4' },
        { address: '2001:db8::1/64', version: '6' },
      ],
      extra: 1,
    });
    expect(convertCniResult(old, '1.1.0')).toEqual({ cniVersion: '1.1.0', ips, extra: 1 });
  });

  it('returns a result unchanged if it already has the wanted version', () => {
    const raw = { cniVersion: '1.0.0' as const, ips: [{ address: '10.0.0.1/24', vendor: 'x' }] };
    expect(convertCniResult(raw, '1.0.0')).toBe(raw);
  });
});
