import { describe, expect, it } from 'vitest';
import { privilegedFields } from '../../../src/driver/index.ts';
import { testDriver } from '../../doubles/objects.ts';
import { deviceClasses, exampleFiles, loadExample } from '../../integration/consumer/example-manifests.ts';
import { type AdmissionRequest, review } from './admission.ts';
import { manifestObjects } from './manifest-objects.ts';

const policies = manifestObjects.filter(({ kind }) => kind === 'ValidatingAdmissionPolicy');
const refusals = (request: AdmissionRequest) => review(policies, request);

describe('the policy for ResourceSlices', () => {
  const userInfo = {
    username: 'system:serviceaccount:kube-system:netdra',
    extra: { 'authentication.kubernetes.io/node-name': ['node-1'] },
  };
  const slice = (nodeName: string | undefined, driver = testDriver) => ({ spec: { nodeName, driver } });
  const resource = 'resourceslices';

  it('lets the driver write, change and delete those of its own node', () => {
    const own = slice('node-1');
    expect(refusals({ operation: 'CREATE', resource, object: own, userInfo })).toEqual([]);
    expect(refusals({ operation: 'UPDATE', resource, object: own, oldObject: own, userInfo })).toEqual([]);
    expect(refusals({ operation: 'DELETE', resource, oldObject: own, userInfo })).toEqual([]);
  });

  it.each(['CREATE', 'UPDATE', 'DELETE'] as const)('refuses those of another node: %s', (operation) => {
    const other = slice('node-2');
    const objects = operation === 'DELETE' ? { oldObject: other } : { object: other, oldObject: other };
    expect(refusals({ operation, resource, ...objects, userInfo })).toEqual([
      "netdra on node node-1 may not touch a ResourceSlice of node 'node-2'",
    ]);
  });

  it('refuses slices for all nodes, and those of other drivers', () => {
    const { nodeName: _none, ...spec } = slice('').spec;
    expect(refusals({ operation: 'CREATE', resource, object: { spec }, userInfo })).toHaveLength(1);
    expect(refusals({ operation: 'CREATE', resource, object: slice('node-1', 'gpu.example.com'), userInfo })).toEqual([
      'netdra may touch ResourceSlices of sriov.netdra.dev only',
    ]);
  });

  it.each([[{}], [{ 'authentication.kubernetes.io/pod-name': ['x'] }]])(
    'refuses a token that is bound to no node: extra %j',
    (extra) => {
      const request = { operation: 'CREATE' as const, resource, object: slice('node-1') };
      expect(refusals({ ...request, userInfo: { ...userInfo, extra } })[0]).toContain('bound to no node');
    },
  );

  it('leaves everybody else alone', () => {
    const kubelet = { username: 'system:node:node-2' };
    expect(refusals({ operation: 'DELETE', resource, oldObject: slice('node-2'), userInfo: kubelet })).toEqual([]);
  });
});

describe('the policies for VFConfig', () => {
  const good = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };
  const spec = (parameters: object, driver = testDriver) => ({ config: [{ opaque: { driver, parameters } }] });
  const create = (resource: string, parameters: object, driver?: string) => {
    const devices = spec(parameters, driver);
    const objects: Record<string, object> = {
      resourceclaims: { spec: { devices } },
      resourceclaimtemplates: { spec: { spec: { devices } } },
      deviceclasses: { spec: devices },
    };
    return refusals({ operation: 'CREATE', resource, object: objects[resource] ?? {}, namespace: 'default' });
  };
  /** A VFConfig that asks for each privileged field. */
  const asking: Record<(typeof privilegedFields)[number], object> = {
    driver: { driver: 'vfio-pci' },
    macAddress: { macAddress: '02:00:00:00:00:01' },
    'vf.trust': { vf: { trust: true } },
    'vf.spoofCheck': { vf: { spoofCheck: false } },
    vhost: { vhost: true },
    sysctls: { sysctls: { 'net.ipv4.conf.IFNAME.arp_notify': 1 } },
    cni: { attach: 'cni', cni: { type: 'host-device' } },
    ipam: { ipam: { type: 'host-local' } },
    'networkAttachmentDefinition.namespace': { networkAttachmentDefinition: { name: 'x', namespace: 'other' } },
    dialects: { dialects: { sriovNetwork: {} } },
  };

  describe.each(['resourceclaims', 'resourceclaimtemplates'])('%s', (resource) => {
    it('may ask for what is not privileged, for nothing, and of other drivers for anything', () => {
      const plain = { vf: { vlan: 7, trust: false, spoofCheck: true }, vhost: false, addresses: ['192.0.2.1/24'] };
      expect(create(resource, { ...good, ...plain })).toEqual([]);
      expect(create(resource, { ...good, networkAttachmentDefinition: { name: 'x', namespace: 'default' } })).toEqual(
        [],
      );
      expect(create(resource, { anything: 1 }, 'gpu.example.com')).toEqual([]);
      const empty = resource === 'resourceclaims' ? { spec: {} } : { spec: { spec: {} } };
      expect(refusals({ operation: 'CREATE', resource, object: empty })).toEqual([]);
    });

    it.each(privilegedFields)('may not ask for %s', (field) => {
      expect(create(resource, { ...good, ...asking[field] })).toEqual([
        `${field} of a VFConfig is for DeviceClasses; claims may not set it`,
      ]);
    });
  });

  it.each(['resourceclaims', 'resourceclaimtemplates', 'deviceclasses'])('refuse other kinds in %s', (resource) => {
    const message = 'parameters for sriov.netdra.dev must be of kind VFConfig, netdra.dev/v1alpha1';
    for (const parameters of [
      {},
      { ...good, kind: 'VfConfig' },
      { ...good, apiVersion: 'netdra.dev/v2' },
      { kind: 'VFConfig' },
    ]) {
      expect(create(resource, parameters)).toEqual([message]);
    }
  });

  it.each(privilegedFields)('let classes ask for %s', (field) => {
    expect(create('deviceclasses', { ...good, ...asking[field] })).toEqual([]);
  });

  it('let every example pass', () => {
    const resources: Record<string, string> = {
      ResourceClaim: 'resourceclaims',
      ResourceClaimTemplate: 'resourceclaimtemplates',
      DeviceClass: 'deviceclasses',
    };
    const objects = [...exampleFiles.flatMap(loadExample), ...deviceClasses()];
    const reviewed = objects.filter(({ kind = '' }) => kind in resources);
    expect(reviewed.length).toBeGreaterThan(5);
    for (const object of reviewed) {
      const resource = resources[object.kind ?? ''] ?? '';
      // CEL sees plain objects, not those of the client's classes.
      const plain = JSON.parse(JSON.stringify(object));
      expect(
        refusals({ operation: 'CREATE', resource, object: plain, namespace: 'default' }),
        object.metadata?.name,
      ).toEqual([]);
    }
  });
});
