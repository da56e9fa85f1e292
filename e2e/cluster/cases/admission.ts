import type { KubernetesObject } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { explain } from '../../../src/lib/errors.ts';
import type { CaseOptions, GetCluster } from '../describe-cluster.ts';

const vfConfig = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };

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

    it.each(claimKinds)('%s: accept every well-formed field, and any parameters for other drivers', async (kind) => {
      // Policies take effect shortly after they are installed.
      await expect.poll(() => refusal(kind, { ...vfConfig, vhost: 'yes' }), { timeout: 30_000 }).toBeDefined();
      const plain = { interfaceName: 'net1', mtu: 1400, rdma: true, vhost: true, addresses: ['192.0.2.1/24'] };
      expect(await refusal(kind, { ...vfConfig, ...plain })).toBeUndefined();
      expect(await refusal(kind, { anything: 1 }, 'gpu.example.com')).toBeUndefined();
    });

    it.each(kinds)('%s: reject parameters whose kind is not VFConfig', async (kind) => {
      const others = [{}, { ...vfConfig, kind: 'VfConfig' }, { ...vfConfig, apiVersion: 'netdra.dev/v2' }];
      for (const parameters of [...others, { kind: 'VFConfig' }]) {
        expect(await refusal(kind, parameters), JSON.stringify(parameters)).toContain(
          `parameters for ${get().cluster.target.driver} must be of kind VFConfig, netdra.dev/v1alpha1`,
        );
      }
    });
  });
}
