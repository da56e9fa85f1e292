import { describe, expect, it } from 'vitest';
import { parseCniIpam, parseCniNetwork } from '../../../../src/node/cni/index.ts';

const single = { cniVersion: '1.0.0', name: 'fast', type: 'sriov', vlan: 5 };
const list = { cniVersion: '1.1.0', name: 'fast', plugins: [{ type: 'host-device' }, { type: 'tuning' }] };
const parse = (value: unknown) => parseCniNetwork(value, 'claim default/fast');

describe('parseCniNetwork', () => {
  it('accepts a list of plugins, and drops fields that are not meant for plugins', () => {
    expect(parse({ ...list, disableCheck: true, disableGC: true })).toEqual(list);
  });

  it('accepts a single plugin as a chain of one', () => {
    expect(parse(single)).toEqual({ cniVersion: '1.0.0', name: 'fast', plugins: [{ type: 'sriov', vlan: 5 }] });
  });

  it('accepts JSON text, as in a NetworkAttachmentDefinition', () => {
    expect(parse(JSON.stringify(list))).toEqual(list);
  });

  it('keeps the fields of a plugin unchanged', () => {
    const plugin = {
      type: 'x',
      capabilities: { mac: true },
      ipam: { type: 'host-local', ranges: [[{ subnet: 'a' }]] },
      n: null,
    };
    expect(parse({ ...list, plugins: [plugin] }).plugins).toEqual([plugin]);
  });

  it('gives an unnamed network the default name', () => {
    const { name: _name, ...nameless } = single;
    expect(parseCniNetwork(nameless, 'x', { defaultName: 'default-fast' }).name).toBe('default-fast');
    expect(parseCniNetwork(single, 'x', { defaultName: 'default-fast' }).name).toBe('fast');
  });

  it('treats null and an empty name as absent, and keys case-insensitively, like Go', () => {
    const loose = {
      CNIVersion: '1.0.0',
      name: '',
      Type: 'sriov',
      ipam: null,
      plugins: null,
      cniVersions: null,
      n: null,
    };
    expect(parseCniNetwork(loose, 'x', { defaultName: 'nad' })).toEqual({
      cniVersion: '1.0.0',
      name: 'nad',
      plugins: [{ type: 'sriov', n: null }],
    });
    const plugin = { TYPE: 'a', capabilities: { mac: null, ips: true }, IPAM: { Type: 'static', type: null } };
    const { plugins } = parse({ cniversion: '1.0.0', NAME: 'fast', Plugins: [plugin] });
    expect(plugins).toEqual([{ type: 'a', capabilities: { ips: true }, ipam: { type: 'static' } }]);
    expect(parseCniIpam({ Type: 'static' }, 'x', { name: 'fast' }).ipam).toEqual({ type: 'static' });
  });

  it('picks the latest CNI version that network and netdra have in common', () => {
    expect(parse({ ...list, cniVersion: '0.4.0', cniVersions: ['0.4.0', '1.0.0', '2.0.0'] }).cniVersion).toBe('1.0.0');
    expect(parse({ ...single, cniVersions: ['0.3.1', '9.0.0'] })).toEqual({
      cniVersion: '1.0.0',
      name: 'fast',
      plugins: [{ type: 'sriov', vlan: 5 }],
    });
  });

  it.each([
    ['an old version', { ...list, cniVersion: '0.2.0' }, 'cniVersion: "0.2.0" is too old: use one of 0.3.0'],
    ['a future version', { ...list, cniVersion: '2.0.0' }, 'cniVersion: "2.0.0" is not known: use one of 0.3.0'],
    ['a network without a version', { ...list, cniVersion: undefined }, 'cniVersion: must be one of 0.3.0'],
    ['a network without a name', { ...list, name: undefined }, 'name: must be a name'],
    ['a name that is a path', { ...list, name: '../x' }, 'name: must begin with a letter'],
    ['a network without plugins', { ...list, plugins: [] }, 'plugins: '],
    [
      'a network with neither list nor type',
      { cniVersion: '1.0.0', name: 'fast' },
      'type: must be the file name of a plugin',
    ],
    ['a plugin without a type', { ...list, plugins: [{ type: 'a' }, {}] }, 'plugins.1.type: must be the file name'],
    ['a type that is a path', { ...list, plugins: [{ type: '/bin/sh' }] }, 'plugins.0.type: must be a bare file name'],
    ['a type that is the parent directory', { ...single, type: '..' }, 'type: must be a bare file name'],
    ['an empty type', { ...single, type: '' }, 'type: must be a bare file name'],
    ['an IPAM type that is a path', { ...single, ipam: { type: '../x' } }, 'ipam.type'],
    [
      'a forged device',
      { ...list, plugins: [{ type: 'a', runtimeConfig: { deviceID: 'x' } }] },
      'plugins.0.runtimeConfig: is filled in',
    ],
    ['a forged result', { ...single, prevResult: {} }, 'prevResult: is filled in'],
    ['a forged result in other letter case', { ...single, PrevRe\u017fult: {} }, 'prevResult: is filled in'],
    ['a forged device in other letter case', { ...single, RUNTIMECONFIG: {} }, 'runtimeConfig: is filled in'],
    ['capabilities that are not booleans', { ...single, capabilities: { mac: 'yes' } }, 'capabilities.mac: '],
    ['a list instead of an object', [list], 'configuration: must be a JSON object'],
    ['a missing configuration', undefined, 'configuration: must be a JSON object'],
    ['text that is not JSON', '{', 'configuration: must be JSON'],
  ])('rejects %s, with the path of the field', (_what, value, problem) => {
    expect(() => parse(value)).toThrow(
      expect.objectContaining({
        code: 'cni-config-invalid',
        message: expect.stringContaining(`invalid CNI network of claim default/fast: ${problem}`),
      }),
    );
  });

  it.each([{}, { type: '' }])('accepts an IPAM section without a plugin: %j', (ipam) => {
    expect(parse({ ...single, ipam }).plugins[0]!.ipam).toEqual(ipam);
  });
});

describe('parseCniIpam', () => {
  it('adds a network name and a version to the section', () => {
    const ipam = { type: 'host-local', subnet: '10.0.0.0/24' };
    expect(parseCniIpam(ipam, 'claim a/b', { name: 'fast' })).toEqual({ cniVersion: '1.0.0', name: 'fast', ipam });
    expect(parseCniIpam(ipam, 'claim a/b', { name: 'fast', cniVersion: '0.4.0' }).cniVersion).toBe('0.4.0');
  });

  it.each([
    [{}, 'fast', 'type: must be the file name of a plugin'],
    [{ type: 'a/b' }, 'fast', 'type: must be a bare file name'],
    [{ type: 'static' }, 'a/b', 'network name: must begin with a letter'],
    ['[]', 'fast', 'configuration: must be a JSON object'],
  ])('rejects %j for network %s', (ipam, name, problem) => {
    expect(() => parseCniIpam(ipam, 'claim a/b', { name })).toThrow(
      expect.objectContaining({
        code: 'cni-config-invalid',
        message: expect.stringContaining(`invalid IPAM configuration of claim a/b: ${problem}`),
      }),
    );
  });
});
