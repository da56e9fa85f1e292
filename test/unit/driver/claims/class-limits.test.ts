import { describe, expect, it } from 'vitest';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { allocated, fromClaim, fromClass } from './driver-bench.ts';
import { bench, useDriverBench } from './driver-hooks.ts';

useDriverBench();

async function outcome(claim: AllocatedClaim): Promise<string> {
  const result = await bench.prepare(claim);
  return result !== undefined && 'error' in result ? explain(result.error) : 'prepared';
}

describe('numa: require, at prepare', () => {
  const claim = allocated('c', ['dev-1'], { config: [fromClaim({ numa: 'require' })] });
  const refused =
    'claim default/c has numa: require, which cannot be enforced: with device metadata off and the start gate file, the driver does not see which containers use a claim (switch device metadata on';

  it('is rejected, even in a repeated prepare, if the driver cannot tell which claims a container uses', async () => {
    bench.isShownByContainers = false;
    expect(await outcome(claim)).toContain(refused);
    expect(bench.store.claims()).toEqual([]);
    const reported = allocated('d', ['dev-2'], { config: [fromClaim({ numa: 'report' })] });
    expect(await outcome(reported)).toBe('prepared');
    bench.isShownByContainers = true;
    expect(await outcome(claim)).toBe('prepared');
    bench.isShownByContainers = false;
    expect(await outcome(claim)).toContain(refused);
    expect(bench.store.claim(claim.identity.uid)?.state).toBe('prepared');
  });
});

describe('DeviceClass limits, at prepare', () => {
  it.each([
    [{ names: ['red', 'default'] }, 'prepared'],
    [{ selector: { matchLabels: { tier: 'gold' } } }, 'prepared'],
    [
      { names: ['red'], selector: { matchExpressions: [{ key: 'tier', operator: 'In', values: ['gold'] }] } },
      'prepared',
    ],
    [{ names: ['red'] }, 'claim default/c: its DeviceClass does not allow claims of namespace default'],
    [
      { selector: { matchExpressions: [{ key: 'tier', operator: 'NotIn', values: ['gold'] }] } },
      'does not allow claims of namespace',
    ],
    [{ selector: { matchExpressions: [{ key: 'vendor', operator: 'Exists' }] } }, 'does not allow claims of namespace'],
    [{}, 'does not allow claims of namespace'],
  ])('allow only claims of namespaces in %j', async (allowedNamespaces, expected) => {
    bench.namespaceLabels.set('default', { tier: 'gold' });
    const config = [fromClass({ limits: { allowedNamespaces } })];
    expect(await outcome(allocated('c', ['dev-1'], { config }))).toContain(expected);
    expect(bench.store.claims()).toHaveLength(expected === 'prepared' ? 1 : 0);
  });

  it('count the devices of all requests with the class', async () => {
    const config = [fromClass({ limits: { maxDevices: 2 } })];
    const requests = [
      { name: 'a', deviceClassName: 'few', devices: ['dev-1', 'dev-2'] },
      { name: 'b', deviceClassName: 'few', devices: ['dev-3'] },
    ];
    expect(await outcome(allocated('c', [], { requests, config }))).toContain(
      'claim default/c has 3 devices of class few, and limits.maxDevices of its DeviceClass is 2',
    );
    expect(await outcome(allocated('d', ['dev-1', 'dev-2'], { config }))).toBe('prepared');
  });

  it('ignore devices that the claim only observes with adminAccess', async () => {
    const config = [fromClass({ limits: { maxDevices: 1 } })];
    const requests = [
      { name: 'own', deviceClassName: 'few', devices: ['dev-1'] },
      { name: 'watch', deviceClassName: 'few', devices: [{ device: 'dev-2', adminAccess: true }] },
    ];
    expect(await outcome(allocated('c', [], { requests, config }))).toBe('prepared');
  });

  it.each([
    [{ routes: [{ destination: '10.1.7.0/24' }] }, 'a route to 10.1.7.0/24, a network of the node'],
    [
      { addresses: ['10.1.99.99/8'] },
      'the address 10.1.99.99/8, which adds a route to 10.0.0.0/8, a network of the node',
    ],
  ])('prevent a claim from reaching a network of the node by %j', async (config, what) => {
    expect(await outcome(allocated('c', ['dev-1'], { config: [fromClaim(config)] }))).toContain(
      `claim default/c may not set ${what}`,
    );
  });
});

describe('limits.vlanRanges, at prepare', () => {
  const limits = { vlanRanges: ['100-199', '300'] };
  const needed =
    'vf.vlan: is needed, since limits.vlanRanges of the DeviceClass allows only 100-199, 300, and neither claim nor DeviceClass sets it';

  it.each([
    ['no VFConfig', []],
    ['a VFConfig without vf', [fromClaim({ interfaceName: 'net1' })]],
    ['a VFConfig without a VLAN', [fromClaim({ vf: { trust: true } })]],
    ['another component that attaches the VF', [fromClaim({ attach: 'observe' })]],
  ])('reject a claim that would leave the VF without a VLAN: with %s', async (_, ofClaim) => {
    for (const overridable of [['vf.vlan', 'vf.trust'], ['vf.trust']]) {
      const config = [fromClass({ overridable, limits }), ...ofClaim];
      expect(await outcome(allocated('c', ['dev-1'], { config }))).toContain(needed);
    }
    // A second entry of the class, without limits, does not make up for it.
    const config = [fromClass({ limits }), fromClass({ vf: { trust: true } })];
    expect(await outcome(allocated('c', ['dev-1'], { config }))).toContain(needed);
  });

  it('allow a claim to leave the VLAN to its class', async () => {
    const vf = { vlan: 7 };
    const configs = [
      [fromClass({ limits, vf }), fromClaim({ mtu: 1400 })],
      [fromClass({ limits }), fromClass({ vf })],
    ];
    for (const [index, config] of configs.entries())
      expect(await outcome(allocated(`c${index}`, [`dev-${index}`], { config }))).toBe('prepared');
  });

  it('do not require a VLAN for whole NICs, which cannot have one', async () => {
    const config = [fromClass({ overridable: ['vf.vlan'], limits })];
    expect(await outcome(allocated('c', ['nic-1', 'dev-1'], { config }))).toContain(needed);
    expect(await outcome(allocated('c', ['nic-1'], { config }))).toBe('prepared');
  });

  it('ask for no VLAN of InfiniBand VFs, which have none', async () => {
    const config = [fromClass({ limits })];
    expect(await outcome(allocated('c', ['ib-1'], { config }))).toBe('prepared');
  });
});
