import type { KubernetesObject } from '@kubernetes/client-node';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { explain } from '../../../src/lib/errors.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import type { ApiCluster } from './api-cluster.ts';

const vfConfig = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };
let cluster: ApiCluster;

async function createClass(name: string, ...configs: object[]): Promise<void> {
  const config = configs.map((fields) => ({ opaque: { driver: testDriver, parameters: { ...vfConfig, ...fields } } }));
  const selectors = [{ cel: { expression: `device.driver == "${testDriver}"` } }];
  await cluster.create({
    ...{ apiVersion: 'resource.k8s.io/v1', kind: 'DeviceClass', metadata: { name } },
    ...{ spec: { selectors, config } },
  } as KubernetesObject);
}

interface Asked {
  namespace?: string;
  kind?: 'ResourceClaim' | 'ResourceClaimTemplate';
  requests?: object[];
  /** Requests that the configuration applies to; absent: all. */
  configured?: string[];
}

/** The API server's answer to a claim with one configuration. */
async function answer(deviceClassName: string, fields: object, asked: Asked = {}): Promise<string> {
  const { namespace = 'default', kind = 'ResourceClaim', configured } = asked;
  const { requests = [{ name: 'vf', exactly: { deviceClassName } }] } = asked;
  const opaque = { driver: testDriver, parameters: { ...vfConfig, ...fields } };
  const devices = { requests, config: [{ opaque, ...(configured === undefined ? {} : { requests: configured }) }] };
  const spec = kind === 'ResourceClaim' ? { devices } : { spec: { devices } };
  const path = `/apis/resource.k8s.io/v1/namespaces/${namespace}/${kind.toLowerCase()}s`;
  const body = { apiVersion: 'resource.k8s.io/v1', kind, metadata: { name: 'judged', namespace }, spec };
  return await cluster.admin.client
    .request({ method: 'POST', path, query: { dryRun: 'All' }, body })
    .then(() => 'accepted', explain);
}

export function describeClassRules(get: () => ApiCluster): void {
  describe('what a class sets is final, says the API server', { tags: 'newest' }, () => {
    beforeAll(async () => {
      cluster = get();
      for (const [name, labels] of [
        ['red', { vendor: 'red' }],
        ['blue', { vendor: 'blue', tier: 'gold' }],
        ['watching', { 'resource.kubernetes.io/admin-access': 'true' }],
      ] as const) {
        await cluster.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } });
      }
      // Policies take effect shortly after they are installed, and see classes shortly after these are created.
      await createClass('ready', { mtu: 1500 });
      await vi.waitFor(
        async () => expect(await answer('ready', { mtu: 9000 })).toContain('DeviceClass ready to 1500'),
        {
          ...{ timeout: 30_000, interval: 250 },
        },
      );
    });

    it.each([
      [{ vf: { vlan: 100, maxTxRate: 1000 } }, { vf: { vlan: 0, maxTxRate: 0 } }, 'vf.vlan to 0', 'to 100'],
      [{ vf: { maxTxRate: 1000 } }, { vf: { maxTxRate: 0 } }, 'vf.maxTxRate to 0', 'to 1000'],
      [{ mtu: 1500 }, { mtu: 9000 }, 'mtu to 9000', 'to 1500'],
      [
        { addresses: ['10.1.0.5/24'] },
        { addresses: ['10.9.9.1/24'] },
        'addresses to ["10.9.9.1/24"]',
        'to ["10.1.0.5/24"]',
      ],
      [
        { attach: 'cni', networkAttachmentDefinition: { name: 'prod', namespace: 'infra' } },
        { networkAttachmentDefinition: { name: 'mine' } },
        'networkAttachmentDefinition to ',
        'mine',
      ],
    ])('%j over %j', async (ofClass, ofClaim, asked, set) => {
      const name = `final-${Object.keys(ofClass).sort().join('-').toLowerCase()}-${JSON.stringify(ofClass).length}`;
      await createClass(name, ofClass);
      const what = () => answer(name, ofClaim);
      await expect.poll(what, { timeout: 10_000 }).toContain(`the claim sets ${asked}`);
      expect(await what()).toContain(set);
      expect(await answer(name, ofClaim, { kind: 'ResourceClaimTemplate' })).toContain(`the claim sets ${asked}`);
      expect(await answer(name, 'attach' in ofClass ? {} : ofClass)).toBe('accepted');
    });

    it('and may be repeated, of sysctls some of them, whichever entry of the class has them', async () => {
      const key = (name: string) => `net.ipv4.conf.IFNAME.${name}`;
      const entries = [{ [key('rp_filter')]: 2, [key('arp_ignore')]: 0 }, { [key('arp_ignore')]: 1 }];
      await createClass('tuned', ...entries.map((sysctls) => ({ sysctls })));
      const judge = (sysctls: object) => answer('tuned', { sysctls });
      await expect
        .poll(() => judge({ [key('rp_filter')]: 1 }), { timeout: 10_000 })
        .toContain('the claim sets sysctls to');
      for (const same of [{}, { [key('rp_filter')]: 2 }, { [key('rp_filter')]: 2, [key('arp_ignore')]: 1 }]) {
        expect(await judge(same)).toBe('accepted');
      }
      for (const other of [{ [key('arp_ignore')]: 0 }, { [key('arp_ignore')]: 1, [key('arp_notify')]: 1 }]) {
        expect(await judge(other)).toContain('the claim sets sysctls to');
      }
    });

    it('and its limits for addresses hold for attach: observe, unless it allows that', async () => {
      const limits = { addressRanges: ['192.0.2.0/24'] };
      await createClass('watched', { limits });
      await createClass('watched-open', { limits, overridable: ['attach'] });
      await createClass('watched-set', { limits, attach: 'observe' });
      const judge = (name: string) => answer(name, { attach: 'observe' });
      await expect
        .poll(() => judge('watched'), { timeout: 10_000 })
        .toContain('sets attach to observe, with which another');
      for (const name of ['watched-open', 'watched-set', 'netdra-kernel']) expect(await judge(name)).toBe('accepted');
    });

    it('for the request that has the class, whichever way it names it', async () => {
      const [two, either] = ['two', 'either'].map((name) => ({ name }));
      const requests = [
        { ...two, exactly: { deviceClassName: 'ready' } },
        {
          ...either,
          firstAvailable: [
            { name: 'a', deviceClassName: 'netdra-kernel' },
            { name: 'b', deviceClassName: 'ready' },
          ],
        },
      ];
      const refused = 'the claim sets mtu to 9000, and DeviceClass ready to 1500';
      for (const configured of [undefined, ['two'], ['either'], ['either/b']]) {
        expect(await answer('', { mtu: 9000 }, { requests, ...(configured && { configured }) })).toContain(refused);
      }
      expect(await answer('', { mtu: 9000 }, { requests, configured: ['either/a'] })).toBe('accepted');
    });

    it('unless the class opens it, within its limits', async () => {
      const limits = {
        ...{ vlanRanges: ['100-199', '300'], addressRanges: ['192.0.2.0/25', '2001:db8::/64'] },
        ...{ routes: ['0.0.0.0/0'], maxDevices: 2, maxAddresses: 2, maxRoutes: 1 },
      };
      await createClass('limited', { mtu: 1500, vf: { vlan: 100 }, overridable: ['mtu', 'vf.vlan'], limits });
      const judge = (fields: object, more: Asked = {}) => answer('limited', fields, more);
      await expect
        .poll(() => judge({ vf: { vlan: 200 } }), { timeout: 10_000 })
        .toContain('limits.vlanRanges of DeviceClass');
      expect(await judge({ mtu: 9000, vf: { vlan: 300 } })).toBe('accepted');
      expect(await judge({ addresses: ['192.0.2.1/24', '2001:db8::1/64'] })).toBe('accepted');
      expect(await judge({ addresses: ['2001:db8::1/48'] })).toContain(
        'DeviceClass limited has limits.routes 0.0.0.0/0',
      );
      expect(await judge({ addresses: ['192.0.2.128/24'] })).toContain('limits.addressRanges of DeviceClass limited');
      expect(await judge({ routes: [{ destination: '0.0.0.0/0' }] })).toBe('accepted');
      expect(await judge({ routes: [{ destination: '::/0' }] })).toContain('limits.routes of DeviceClass limited');
      expect(await judge({ addresses: ['192.0.2.1/24', '192.0.2.2/24', '192.0.2.3/24'] })).toContain(
        'limits.maxAddresses',
      );
      const request = (count: number) => [{ name: 'vf', exactly: { deviceClassName: 'limited', count } }];
      expect(await judge({}, { requests: request(2) })).toBe('accepted');
      expect(await judge({}, { requests: request(3) })).toContain('limits.maxDevices of DeviceClass limited');
      expect(await answer('netdra-kernel', { routes: [{ destination: '0.0.0.0/0' }] })).toContain('default route');
      expect(await answer('netdra-kernel', { addresses: ['192.0.2.10/1'] })).toContain(
        'which adds a route to 128.0.0.0/1, and DeviceClass netdra-kernel has no limits.routes that allow a default route',
      );
      expect(await judge({ overridable: ['mtu'] })).toContain('a VFConfig here has the fields');
    });

    it('and only in the namespaces that the class is for', async () => {
      const matchExpressions = [{ key: 'tier', operator: 'In', values: ['gold'] }];
      const allowedNamespaces = { names: ['red'], selector: { matchExpressions } };
      await createClass('some', { limits: { allowedNamespaces } });
      const judge = (namespace: string) => answer('some', {}, { namespace });
      await expect
        .poll(() => judge('default'), { timeout: 10_000 })
        .toContain('DeviceClass some is not for namespace default');
      expect(await judge('red')).toBe('accepted');
      expect(await judge('blue')).toBe('accepted');
    });

    it('but not of requests that only observe devices, which the driver does not configure', async () => {
      const limits = { allowedNamespaces: { names: ['red'] }, maxDevices: 1 };
      await createClass('watchable', { mtu: 1500, limits });
      const judge = (more: object) => {
        const requests = [{ name: 'all', exactly: { deviceClassName: 'watchable', count: 2, ...more } }];
        return answer('', { mtu: 9000 }, { namespace: 'watching', requests });
      };
      await expect.poll(() => judge({}), { timeout: 10_000 }).toContain('is not for namespace watching');
      expect(await judge({ adminAccess: true })).toBe('accepted');
    });
  });
}
