import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  fromResourceVersion,
  resourceVersions,
  toResourceVersion,
} from '../../../../src/framework/kube/resource-versions.ts';
import { explain } from '../../../../src/lib/errors.ts';
import type { ApiServerOptions } from '../../../doubles/api-server.ts';
import { startKubeBench } from '../../../doubles/kube-bench.ts';
import { buildClaim } from '../../../doubles/objects.ts';

async function startBench(options: ApiServerOptions = {}) {
  const bench = await startKubeBench(options);
  const { api } = bench;
  api.create(buildClaim('c', { requests: [{ name: 'vf', devices: ['vf-0'] }] }));
  const versions = () => api.log.map(({ path, status }) => `${path.split('/')[3]} ${status}`);
  return { ...bench, versions };
}

describe('ResourceApi', () => {
  it('discovers API versions lazily, and keeps the version that worked', async () => {
    await using bench = await startBench({ draVersions: ['v1beta2', 'v1beta1'] });
    for (let n = 0; n < 3; n++) await bench.resources.readClaim('default', 'c');
    expect(bench.versions()).toEqual(['v1 404', 'v1beta2 200', 'v1beta2 200', 'v1beta2 200']);
  });

  it('returns to v1 when the cluster drops the version in use', async () => {
    await using bench = await startBench({ draVersions: ['v1beta1'] });
    await bench.resources.readClaim('default', 'c');
    bench.api.serveDraVersions(['v1']);
    await bench.resources.readClaim('default', 'c');
    expect(bench.versions().slice(3)).toEqual(['v1beta1 404', 'v1 200']);
    expect(bench.resources.version).toBe('v1');
  });

  it("requests only the path of a claim, whatever characters the claim's name has", async () => {
    await using bench = await startBench();
    const odd = { namespace: '../../../../api/v1/nodes/x?', name: 'a/status#' };
    await expect(bench.resources.readClaim(odd.namespace, odd.name)).rejects.toMatchObject({ code: 'api-not-found' });
    const signal = new AbortController().signal;
    await expect(bench.resources.patchClaimStatus(odd, [], signal)).rejects.toMatchObject({ code: 'api-not-found' });
    const [namespace, name] = ['..%2F..%2F..%2F..%2Fapi%2Fv1%2Fnodes%2Fx%3F', 'a%2Fstatus%23'];
    const path = `/apis/resource.k8s.io/v1/namespaces/${namespace}/resourceclaims/${name}`;
    expect(bench.api.log.map((request) => request.path)).toEqual([path, `${path}/status`]);
  });

  it.each([
    ['..', 'c'],
    ['default', '..'],
    ['.', 'c'],
    ['default', ''],
  ])('rejects the claim name %s/%s without a request', async (namespace, name) => {
    await using bench = await startBench();
    await expect(bench.resources.readClaim(namespace, name)).rejects.toMatchObject({ code: 'api-invalid' });
    expect(bench.api.log).toEqual([]);
  });

  it('tries no other API versions if an object does not exist', async () => {
    await using bench = await startBench();
    await expect(bench.resources.readClaim('default', 'absent')).rejects.toMatchObject({ code: 'api-not-found' });
    expect(bench.versions()).toEqual(['v1 404']);
  });

  it('names the required Kubernetes version if the cluster serves no supported API version', async () => {
    await using bench = await startBench({ draVersions: [] });
    const error = await bench.resources.readClaim('default', 'c').catch((cause) => cause);
    expect(error).toMatchObject({ code: 'api-unserved' });
    expect(explain(error)).toMatch(/serves none of resource.k8s.io\/v1, v1beta2, v1beta1: .*needs Kubernetes 1.34/);
  });
});

describe('toResourceVersion', () => {
  const device = fc.record(
    {
      name: fc.string({ minLength: 1 }),
      attributes: fc.dictionary(fc.string(), fc.object()),
      taints: fc.array(fc.object()),
    },
    { requiredKeys: ['name'] },
  );

  it.each(resourceVersions)('preserves a slice that is converted to %s and back', (version) => {
    fc.assert(
      fc.property(fc.array(device), fc.string(), (devices, driver) => {
        const slice = { kind: 'ResourceSlice', spec: { driver, devices } };
        const sent = toResourceVersion(slice, version);
        expect(sent).toMatchObject({ apiVersion: `resource.k8s.io/${version}` });
        expect(fromResourceVersion(sent, version)).toMatchObject(slice);
      }),
    );
  });
});
