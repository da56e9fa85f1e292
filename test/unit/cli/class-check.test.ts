import { describe, expect, it } from 'vitest';
import { testDriver } from '../../doubles/objects.ts';
import { claim, deviceClass, linesFor } from './validated.ts';

/** A class with more fields than its configuration. */
const classWith = (spec: string, fields: string) => deviceClass('c', fields).replace('spec:\n', `spec:\n  ${spec}\n`);
const ofVfs = `selectors: [{ cel: { expression: 'device.attributes["${testDriver}"].kind == "vf"' } }]`;
const selecting = (linkType: string) =>
  ofVfs.replace('"vf"', `"vf" && (${linkType.replaceAll('T', `device.attributes["${testDriver}"].linkType`)})`);
const twoOfC = 'exactly: { deviceClassName: c, count: 2 }';

describe('validateFiles, on classes and what they leave to claims', () => {
  it.each([
    ['IPAM without a plugin', 'ipam: { subnet: 192.0.2.0/24 }', 'ipam', /parameters: ipam: .*type: /],
    ['an invalid CNI network', 'attach: cni, cni: { cniVersion: 1.0.0, name: n }', 'cni', /parameters: cni: .*type: /],
    [
      'an address key without an address pool',
      'addressPool: { key: db }',
      'addressPool.name',
      /parameters: addressPool\.name: is needed/,
    ],
    [
      'keepHostConfig for VFs',
      'keepHostConfig: true',
      'keepHostConfig',
      /parameters: keepHostConfig: is for whole NICs, and the class selects VFs/,
    ],
    [
      'a VLAN limit but no VLAN',
      'limits: { vlanRanges: ["100-199"] }',
      'vf.vlan',
      /parameters: vf\.vlan: is needed, since limits\.vlanRanges of the DeviceClass allows only 100-199, and/,
    ],
  ])('rejects a class with %s, unless claims may set the field', async (_, fields, field, fault) => {
    const faultsOf = async (fields: string, spec = ofVfs) => (await linesFor([classWith(spec, fields)])).slice(0, -1);
    expect(await faultsOf(fields)).toEqual([expect.stringMatching(fault)]);
    expect(await faultsOf(`${fields}, overridable: [${field}]`)).toEqual([]);
    // Claims for an extended resource have no configuration.
    const resource = `${ofVfs}\n  extendedResourceName: example.com/vf`;
    expect(await faultsOf(`${fields}, overridable: [${field}]`, resource)).toContainEqual(
      expect.stringMatching(/claims for extended resource example\.com\/vf cannot set a field: /),
    );
  });

  it('accepts a class whose claims must set a required field, and rejects a claim without that field', async () => {
    const own = deviceClass('tenant', 'overridable: [addressPool.name], addressPool: { key: db }');
    expect(await linesFor([own], { strict: true })).toEqual(['1 objects checked, 0 faults']);
    expect(await linesFor([own, claim('tenant', 'addressPool: { name: lan }')])).toEqual([
      '2 objects checked, 0 faults',
    ]);
    expect(await linesFor([own, claim('tenant', 'mtu: 1500')])).toEqual([
      expect.stringMatching(/^1:9:9: request vf: .* addressPool\.name: is needed/),
      '2 objects checked, 1 faults',
    ]);
  });

  it('rejects a claim without a VLAN if its class limits VLANs, unless it may get a whole NIC', async () => {
    const fields = 'overridable: [vf.vlan], limits: { vlanRanges: ["100-199"] }';
    const fault = /^1:9:9: request vf: .* vf\.vlan: is needed/;
    const asked = claim('c', 'mtu: 1500');
    expect((await linesFor([classWith(ofVfs, fields), asked]))[0]).toMatch(fault);
    const ofNics = ofVfs.replace('"vf"', '"nic"');
    for (const spec of ['', ofNics])
      expect(await linesFor([classWith(spec, fields), asked])).toEqual(['2 objects checked, 0 faults']);
    const request = `exactly: { deviceClassName: c, ${ofVfs} }`;
    expect((await linesFor([deviceClass('c', fields), claim('c', 'mtu: 1500', request)]))[0]).toMatch(fault);
    // Without `overridable`, such a class is for whole NICs only.
    for (const spec of ['', ofNics])
      expect(await linesFor([classWith(spec, 'limits: { vlanRanges: [] }')])).toEqual(['1 objects checked, 0 faults']);
  });

  it('accepts a VLAN limit without a VLAN for InfiniBand VFs, which have none', async () => {
    const ofInfiniband = ofVfs.replace('"vf"', `"vf" && device.attributes["${testDriver}"].linkType == "infiniband"`);
    const fields = 'overridable: [mtu], limits: { vlanRanges: ["100-199"] }';
    expect(await linesFor([classWith(ofInfiniband, fields), claim('c', 'mtu: 1500')])).toEqual([
      '2 objects checked, 0 faults',
    ]);
  });

  it.each(['T != "infiniband"', 'T == "ethernet"', '!("infiniband" == T)', 'T == "ethernet" || T != "infiniband"'])(
    'applies the rules for Ethernet to VFs of the selector %s',
    async (selector) => {
      const spec = selecting(selector);
      const bond = 'driver: kernel, overridable: [vf.vlan], bond: { name: bond0, mode: 802.3ad }';
      expect(await linesFor([classWith(spec, bond), claim('c', 'vf: { vlan: 7 }', twoOfC)])).toEqual([
        '2 objects checked, 0 faults',
      ]);
      expect((await linesFor([classWith(spec, 'limits: { vlanRanges: ["100"] }')]))[0]).toMatch(/vf\.vlan: is needed/);
    },
  );

  it.each(['T == "infiniband"', 'T != "ethernet"'])(
    'applies the rules for InfiniBand to VFs of the selector %s',
    async (selector) => {
      const spec = selecting(selector);
      const bond = 'driver: kernel, overridable: [mtu], bond: { name: bond0, mode: 802.3ad }';
      expect((await linesFor([classWith(spec, bond), claim('c', 'mtu: 1500', twoOfC)]))[0]).toMatch(/is InfiniBand/);
      const limited = 'overridable: [mtu], limits: { vlanRanges: ["100"] }';
      expect(await linesFor([classWith(spec, limited), claim('c', 'mtu: 1500')])).toEqual([
        '2 objects checked, 0 faults',
      ]);
    },
  );

  it('requires no VLAN and no bond mode of VFs whose selector allows both link types', async () => {
    const spec = selecting('T == "infiniband" || T == "ethernet"');
    const bond = 'driver: kernel, overridable: [mtu], bond: { name: bond0, mode: 802.3ad }';
    expect(
      await linesFor([classWith(spec, `${bond}, limits: { vlanRanges: ["100"] }`), claim('c', 'mtu: 1500', twoOfC)]),
    ).toEqual(['2 objects checked, 0 faults']);
  });

  it('rejects claims that cannot get an address of their pool', async () => {
    const pool = deviceClass('pool', 'addressPool: { name: lan }, overridable: [addressPool.key]');
    const keyless =
      /request vf: claim apps\/fast-net: addressPool of request vf has no key, and the claim is not from a/;
    const alone = claim('pool', 'mtu: 1500');
    expect(await linesFor([pool, alone])).toEqual([expect.stringMatching(keyless), '2 objects checked, 1 faults']);
    const template = alone
      .replace('kind: ResourceClaim', 'kind: ResourceClaimTemplate')
      .replace(/^spec:\n(.*)/ms, (_, spec: string) => `spec:\n  spec:\n${spec.replaceAll(/^/gm, '  ')}`);
    const ofPod = alone.replace(
      'namespace: apps',
      'namespace: apps, ownerReferences: [{ kind: Pod, controller: true }]',
    );
    for (const fine of [claim('pool', 'addressPool: { key: db }'), template, ofPod])
      expect(await linesFor([pool, fine]), fine).toEqual(['2 objects checked, 0 faults']);
    const resource = pool.replace('spec:\n', 'spec:\n  extendedResourceName: example.com/vf\n');
    expect((await linesFor([resource]))[0]).toMatch(
      /^0:\d+:\d+: parameters: claims for extended resource example\.com\/vf cannot set a field: addressPool\.key: is needed/,
    );
    const values = `deviceClasses:\n  more:\n    - { name: a, extendedResourceName: example.com/vf, vfConfig: { addressPool: { name: lan } } }\n`;
    expect((await linesFor([values]))[0]).toMatch(/^0:3:\d+: vfConfig: claims for extended resource example\.com\/vf/);
  });

  it('rejects a claim that sets keepHostConfig for VFs', async () => {
    const overridable = 'overridable: [keepHostConfig]';
    const asked = claim('c', 'keepHostConfig: true');
    expect((await linesFor([classWith(ofVfs, overridable), asked]))[0]).toMatch(
      /request vf: .* keepHostConfig: is for whole NICs, and device vf of request vf is a VF/,
    );
    expect(await linesFor([deviceClass('c', overridable), asked])).toEqual(['2 objects checked, 0 faults']);
    const request = `exactly: { deviceClassName: c, ${ofVfs} }`;
    expect((await linesFor([deviceClass('c', overridable), claim('c', 'keepHostConfig: true', request)]))[0]).toMatch(
      /keepHostConfig: is for whole NICs/,
    );
  });
});
