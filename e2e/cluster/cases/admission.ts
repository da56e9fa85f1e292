import type { KubernetesObject } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { type ClosedField, closedFields } from '../../../src/driver/claims/index.ts';
import { explain } from '../../../src/lib/errors.ts';
import type { CaseOptions, GetCluster } from '../describe-cluster.ts';

const vfConfig = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };

/** A VFConfig that requests each closed field. */
const closed: Record<ClosedField, object> = {
  driver: { driver: 'vfio-pci' },
  macAddress: { macAddress: '02:00:00:00:00:01' },
  'vf.vlan': { vf: { vlan: 0 } },
  'vf.qos': { vf: { qos: 1 } },
  'vf.vlanProto': { vf: { vlanProto: '802.1ad' } },
  'vf.spoofCheck': { vf: { spoofCheck: false } },
  'vf.trust': { vf: { trust: true } },
  'vf.linkState': { vf: { linkState: 'enable' } },
  'vf.minTxRate': { vf: { minTxRate: 10_000 } },
  'vf.maxTxRate': { vf: { maxTxRate: 0 } },
  'bond.mode': { bond: { name: 'bond0', mode: '802.3ad' } },
  vhost: { vhost: true },
  sysctls: { sysctls: { 'net.ipv4.conf.IFNAME.arp_notify': 1 } },
  cni: { attach: 'cni', cni: { type: 'host-device' } },
  ipam: { ipam: { type: 'host-local' } },
  networkAttachmentDefinition: { networkAttachmentDefinition: { name: 'mine' } },
  'networkAttachmentDefinition.namespace': { networkAttachmentDefinition: { name: 'x', namespace: 'other' } },
  dialects: { dialects: { sriovNetwork: {} } },
};

const claimKinds = ['ResourceClaim', 'ResourceClaimTemplate'] as const;
const kinds = [...claimKinds, 'DeviceClass'] as const;

/** The chart's policies, judged by the API server. */
export function describeAdmission(get: GetCluster, { admissionPolicies }: CaseOptions): void {
  describe.runIf(admissionPolicies)('admission policies for VFConfig', () => {
    /** The API server's reason to refuse an object of a kind with these parameters; `undefined` if it accepts it. */
    async function refusal(kind: (typeof kinds)[number], parameters: object, driver?: string) {
      const { cluster } = get();
      const { namespace, target } = cluster;
      const config = [{ opaque: { driver: driver ?? target.driver, parameters } }];
      const requests = [{ name: 'vf', exactly: { deviceClassName: target.classes.kernel, count: 2 } }];
      const spec = { devices: { requests, config } };
      const specs = { ResourceClaim: spec, ResourceClaimTemplate: { spec }, DeviceClass: { config } };
      const metadata = { name: 'checked', ...(kind === 'DeviceClass' ? {} : { namespace }) };
      const object = { apiVersion: 'resource.k8s.io/v1', kind, metadata, spec: specs[kind] } as KubernetesObject;
      return await cluster.check(object).then(() => undefined, explain);
    }

    it.each(claimKinds)('%s: may set what is open, and anything for other drivers', async (kind) => {
      // Policies take effect shortly after they are installed.
      await expect.poll(() => refusal(kind, { ...vfConfig, vhost: true }), { timeout: 30_000 }).toBeDefined();
      const plain = { interfaceName: 'net1', mtu: 1400, rdma: true, addresses: ['192.0.2.1/24'] };
      expect(await refusal(kind, { ...vfConfig, ...plain })).toBeUndefined();
      expect(await refusal(kind, { anything: 1 }, 'gpu.example.com')).toBeUndefined();
    });

    it.each(closedFields)('%s is for DeviceClasses', async (field) => {
      const parameters = { ...vfConfig, ...closed[field] };
      for (const kind of claimKinds) {
        // The API server reports one of several reasons: the class sets a driver itself.
        const [outer = field] = field.split('.namespace');
        const reasons = [
          `${outer} of a VFConfig is for DeviceClasses; claims may not set it`,
          `the claim sets ${outer} to`,
        ];
        const refused = await refusal(kind, parameters);
        expect(
          reasons.some((reason) => refused?.includes(reason)),
          `${kind}: ${refused}`,
        ).toBe(true);
      }
      expect(await refusal('DeviceClass', parameters)).toBeUndefined();
    });

    it.each(kinds)('%s: parameters of other kinds are refused', async (kind) => {
      const others = [{}, { ...vfConfig, kind: 'VfConfig' }, { ...vfConfig, apiVersion: 'netdra.dev/v2' }];
      for (const parameters of [...others, { kind: 'VFConfig' }]) {
        expect(await refusal(kind, parameters), JSON.stringify(parameters)).toContain(
          `parameters for ${get().cluster.target.driver} must be of kind VFConfig, netdra.dev/v1alpha1`,
        );
      }
    });
  });
}
