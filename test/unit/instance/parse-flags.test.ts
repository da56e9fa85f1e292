import { describe, expect, it } from 'vitest';
import { layoutNames } from '../../../src/framework/metadata/index.ts';
import {
  namesAmong,
  parseAddress,
  parseDriverName,
  parseHandlers,
  parseNamespace,
  parseSimulation,
} from '../../../src/instance/parse-flags.ts';

describe('parsers of flags', () => {
  it('parse the number of VFs to simulate', () => {
    expect(parseSimulation('8')).toEqual({ pfs: 1, vfsPerPf: 8 });
    expect(parseSimulation('2x4')).toEqual({ pfs: 2, vfsPerPf: 4 });
    expect(parseSimulation('2x4@0:1')).toEqual({ pfs: 2, vfsPerPf: 4, numaNodes: [0, 1] });
  });

  it.each(['0', '9x1', '1x129', 'x', '', '-1', '2x', '1e3', '8@', '8@-1', '8@0,1'])(
    'reject %j as the number of VFs to simulate',
    (text) => {
      expect(() => parseSimulation(text)).toThrow(/such as 8 or 2x4/);
    },
  );

  it('drop duplicate layouts', () => {
    const parseLayouts = namesAmong(layoutNames);
    expect(parseLayouts('kep, v1,kep')).toEqual(['kep', 'v1']);
    expect(() => parseLayouts('v1,v2')).toThrow('unknown: v2; known are v1, kep');
    expect(() => parseLayouts('')).toThrow(/unknown/);
  });

  it('parse runtime handlers with wildcards', () => {
    expect(parseHandlers('kata, kata-*,runsc,kata')).toEqual(['kata', 'kata-*', 'runsc']);
    expect(parseHandlers('')).toEqual([]);
    for (const bad of ['Kata', 'a b', 'a/b', '-a', 'a?'])
      expect(() => parseHandlers(bad)).toThrow('such as kata,kata-*');
  });

  it.each([
    ['true', /takes the operator's namespace/],
    ['false', /takes the operator's namespace/],
    ['Operator', /the name of a namespace is needed/],
    ['', /the name of a namespace is needed/],
  ])('reject %j as a namespace', (text, fault) => {
    expect(parseNamespace('sriov-network-operator')).toBe('sriov-network-operator');
    expect(() => parseNamespace(text)).toThrow(fault);
  });

  it('accept only DNS names as driver names', () => {
    expect(parseDriverName('sriov.netdra.dev')).toBe('sriov.netdra.dev');
    for (const bad of ['', 'A.b', 'a..b', '-a', `${'a'.repeat(64)}`, 'a/b'])
      expect(() => parseDriverName(bad)).toThrow();
  });
});

describe('parseAddress', () => {
  it.each([
    [':8080', { port: 8080 }],
    ['127.0.0.1:80', { host: '127.0.0.1', port: 80 }],
    ['[::1]:9', { host: '::1', port: 9 }],
    ['[::ffff:127.0.0.1]:80', { host: '::ffff:127.0.0.1', port: 80 }],
    ['[fe80::1%eth0]:80', { host: 'fe80::1%eth0', port: 80 }],
    ['localhost:0', { host: 'localhost', port: 0 }],
  ])('accepts %s', (text, address) => {
    expect(parseAddress(text)).toEqual(address);
  });

  it.each(['8080', 'host', ':', ':70000', '::1:80', '[::1]', '[1:2]:3', '[host]:80', 'a:b'])('rejects %s', (text) => {
    expect(() => parseAddress(text)).toThrow('is not an address to listen on');
  });
});
