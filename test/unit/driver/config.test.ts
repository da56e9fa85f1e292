import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { configForDevice, resolveVfConfig } from '../../../src/driver/config.ts';
import { DriverError } from '../../../src/driver/index.ts';
import type { AllocatedClaim } from '../../../src/kubeletplugin/index.ts';
import { buildClaim, type ConfigOptions, testDriver } from '../../doubles/objects.ts';

const base = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };

function claimWith(config: ConfigOptions[]): AllocatedClaim {
  const object = buildClaim('fast-net', { requests: [{ name: 'vf', devices: ['dev-1'] }], config });
  const { namespace, name, uid } = object.metadata;
  return { identity: { namespace, name, uid }, podClaimName: undefined, results: [], podUids: [], object };
}

const fromClaim = (parameters: object, more: Partial<ConfigOptions> = {}): ConfigOptions => ({
  source: 'FromClaim',
  parameters: { ...base, ...parameters },
  ...more,
});

describe('resolveVfConfig', () => {
  it('merges field by field: the claim over the class, whatever their order', () => {
    const claim = claimWith([
      fromClaim({ mtu: 9000 }),
      { source: 'FromClass', parameters: { ...base, mtu: 1500, interfaceName: 'net1' } },
    ]);
    expect(resolveVfConfig(testDriver, claim, 'vf')).toEqual({ mtu: 9000, interfaceName: 'net1' });
  });

  it('takes entries for all requests, for this one, and for the base of a subrequest', () => {
    const claim = claimWith([
      fromClaim({ mtu: 1400 }),
      fromClaim({ interfaceName: 'net1' }, { requests: ['vf'] }),
      fromClaim({ interfaceName: 'net9' }, { requests: ['other'] }),
      fromClaim({ mtu: 1300 }, { requests: ['vf/small'] }),
    ]);
    expect(resolveVfConfig(testDriver, claim, 'vf/large')).toEqual({ mtu: 1400, interfaceName: 'net1' });
    expect(resolveVfConfig(testDriver, claim, 'vf/small')).toEqual({ mtu: 1300, interfaceName: 'net1' });
  });

  it('merges the properties that the PF has for the VF one by one', () => {
    const claim = claimWith([
      { source: 'FromClass', parameters: { ...base, vf: { trust: true, vlan: 7, maxTxRate: 100 } } },
      fromClaim({ vf: { vlan: 8 } }),
    ]);
    expect(resolveVfConfig(testDriver, claim, 'vf')).toEqual({ vf: { trust: true, vlan: 8, maxTxRate: 100 } });
  });

  it.each([
    [{ driver: 'vfio-pci' }, 'driver'],
    [{ macAddress: '02:00:00:00:00:01' }, 'macAddress'],
    [{ vf: { trust: true } }, 'vf.trust'],
    [{ vf: { spoofCheck: false } }, 'vf.spoofCheck'],
  ] as const)('takes %j from the class only, unless the operator opens it', (fields, field) => {
    const fromClass: ConfigOptions = { source: 'FromClass', parameters: { ...base, ...fields } };
    expect(resolveVfConfig(testDriver, claimWith([fromClass]), 'vf')).toEqual(fields);
    const claim = claimWith([fromClaim(fields)]);
    expect(() => resolveVfConfig(testDriver, claim, 'vf')).toThrow(`claim default/fast-net may not set ${field}`);
    expect(resolveVfConfig(testDriver, claim, 'vf', [field])).toEqual(fields);
  });

  it('lets claims ask for less than the class gives', () => {
    const claim = claimWith([fromClaim({ vf: { trust: false, spoofCheck: true } })]);
    expect(resolveVfConfig(testDriver, claim, 'vf')).toEqual({ vf: { trust: false, spoofCheck: true } });
  });

  it("passes over other drivers' parameters", () => {
    const claim = claimWith([{ source: 'FromClaim', driver: 'gpu.example', parameters: { anything: true } }]);
    expect(resolveVfConfig(testDriver, claim, 'vf')).toEqual({});
  });

  it.each([
    [{ mtu: 'big' }, /from the claim: mtu: /],
    [{ mtu: 1 }, /mtu: .*68/],
    [{ interfaceName: 'a/b' }, /interfaceName: 1 to 15 bytes/],
    [{ interfaceName: '..' }, /interfaceName: /],
    [{ interfaceName: 'x'.repeat(16) }, /interfaceName: /],
    [{ macAddress: '01:00:5e:00:00:01' }, /macAddress: .*not a multicast/],
    [{ addresses: ['10.0.0.1'] }, /addresses\.0: "10\.0\.0\.1" is not an address with prefix length/],
    [{ addresses: ['10.0.0.1/33'] }, /addresses\.0: /],
    [{ addresses: ['fe80::1%eth0/64'] }, /addresses\.0: /],
    [{ routes: [{ destination: 'default' }] }, /routes\.0\.destination: /],
    [{ routes: [{ destination: '10.0.0.1/8' }] }, /routes\.0\.destination: .*no host bits/],
    [{ routes: [{ destination: '0.0.0.0/0', gateway: 'gw' }] }, /routes\.0\.gateway: /],
    [{ colour: 'red' }, /Unrecognized key: "colour"/],
    [{ kind: 'VfConfig' }, /kind: /],
    [{ apiVersion: 'netdra.dev/v9' }, /apiVersion: /],
  ])('refuses %j with the path of the field', (parameters, message) => {
    expect(() => resolveVfConfig(testDriver, claimWith([fromClaim(parameters)]), 'vf')).toThrow(message);
  });

  it('answers any parameters with a config or a DriverError', () => {
    const fields = fc.record(
      {
        interfaceName: fc.anything(),
        mtu: fc.anything(),
        macAddress: fc.anything(),
        addresses: fc.anything(),
        routes: fc.anything(),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.oneof(fc.jsonValue(), fields), (parameters) => {
        try {
          const claim = claimWith([{ source: 'FromClaim', parameters: parameters as object }]);
          resolveVfConfig(testDriver, claim, 'vf');
        } catch (error) {
          expect(error).toBeInstanceOf(DriverError);
        }
      }),
    );
  });
});

describe('configForDevice', () => {
  it('numbers the interfaces of a request', () => {
    expect(configForDevice({ interfaceName: 'net%d' }, 'ns/c', 2, 3)).toEqual({ interfaceName: 'net2' });
  });

  it.each([
    [{ addresses: ['192.0.2.1/24'] }, /addresses: the request of claim ns\/c has 2 devices/],
    [{ macAddress: '02:00:00:00:00:01' }, /macAddress: /],
    [{ interfaceName: 'net1' }, /interfaceName: /],
  ])('refuses %j for several devices', (config, message) => {
    expect(() => configForDevice(config, 'ns/c', 0, 2)).toThrow(message);
    expect(configForDevice(config, 'ns/c', 0, 1)).toEqual(config);
  });
});
