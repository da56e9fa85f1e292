import type { V1Pod } from '@kubernetes/client-node';
import { describe, expect, it, onTestFinished } from 'vitest';
import { layouts } from '../../../../src/framework/metadata/index.ts';
import {
  buildClaim,
  buildPod,
  type ClaimOptions,
  generateClaim,
  type Identified,
  reserveClaim,
  testDriver,
} from '../../../doubles/objects.ts';
import { Bench, preparedDevice } from './bench.ts';

const pathsOf = (claim: string) => [
  `/var/run/dra-device-attributes/${claim}/vf/${testDriver}-metadata.json`,
  `/etc/dra/${claim}.vf.json`,
];
const request = (device: string): ClaimOptions => ({ requests: [{ name: 'vf', devices: [device] }] });

/** `nic` in the pod is a claim from a template, `x` the claim that is called `nic`. */
const ofBoth = [
  { name: 'nic', resourceClaimTemplateName: 't' },
  { name: 'x', resourceClaimName: 'nic' },
];

async function stage() {
  const bench = await Bench.start();
  onTestFinished(() => bench[Symbol.asyncDispose]());
  /** An instance whose driver fails to prepare the claims with these names. */
  const start = (failing: string[] = []) =>
    bench.startHelper(
      {
        prepareResourceClaims: async (claims) =>
          new Map(
            claims.map(({ identity: { uid, name }, results }) => {
              const devices = results.map(({ device }) => preparedDevice(device));
              return [uid, failing.splice(0).includes(name) ? { error: new Error('not now') } : { devices }];
            }),
          ),
      },
      {
        metadata: {
          layouts: [layouts.kep, layouts['downward-api']],
          attributesDir: `${bench.dir}/attributes`,
          downwardApiDir: `${bench.dir}/pods`,
        },
      },
    );
  const addPod = (name: string, resourceClaims: (typeof ofBoth)[number][]) => {
    const pod = buildPod(name, { resourceClaims });
    bench.api.create(pod);
    const generated = generateClaim(pod, 'nic', request(`dev-${name}`));
    bench.api.create(generated);
    return { pod, generated: generated.metadata.name };
  };
  /** The name of the claim that each file in a container is about, by path. */
  const seen = (pod: Identified<V1Pod>) => {
    const mounts = Object.entries(bench.mountsOf(pod));
    return Object.fromEntries(mounts.map(([path, text]) => [path, JSON.parse(text ?? '{}').metadata?.name]));
  };
  return { bench, start, addPod, seen };
}

const filesOf = (names: Record<string, string>) =>
  Object.fromEntries(Object.entries(names).flatMap(([name, of]) => pathsOf(name).map((path) => [path, of])));

describe("metadata paths, if the pod's name for a template claim is the name of another ResourceClaim", () => {
  it.each([[ofBoth], [ofBoth.toReversed()]])('lead to that ResourceClaim if the pod uses both: %j', async (claims) => {
    const { bench, start, addPod, seen } = await stage();
    const helper = await start();
    const { pod, generated } = addPod('app', claims);
    bench.api.create(buildClaim('nic', { ...request('dev-nic'), pods: [pod] }));
    await bench.kubelet.prepare(pod);
    const expected = filesOf({ nic: 'nic', [generated]: generated });
    expect(seen(pod)).toEqual(expected);
    await helper[Symbol.asyncDispose]();
    const next = await start();
    expect(await next.restoreMetadata()).toEqual([]);
    expect(seen(pod)).toEqual(expected);
  });

  it('lead to that ResourceClaim if the pod uses both, even if preparing it fails at first', async () => {
    const { bench, start, addPod, seen } = await stage();
    await start(['nic']);
    const { pod, generated } = addPod('app', ofBoth.toReversed());
    bench.api.create(buildClaim('nic', { ...request('dev-nic'), pods: [pod] }));
    await expect(bench.kubelet.prepare(pod)).rejects.toThrow('not now');
    await bench.kubelet.prepare(pod);
    expect(seen(pod)).toEqual(filesOf({ nic: 'nic', [generated]: generated }));
  });

  it('lead to that ResourceClaim if the pod uses both, even if it was first prepared for another pod', async () => {
    const { bench, start, addPod, seen } = await stage();
    await start();
    const first = buildPod('first', { resourceClaims: [{ name: 'x', resourceClaimName: 'nic' }] });
    const claim = buildClaim('nic', { ...request('dev-nic'), pods: [first] });
    bench.api.create(claim);
    await bench.kubelet.prepare(first);
    const { pod, generated } = addPod('second', ofBoth.toReversed());
    reserveClaim(claim, pod);
    bench.api.update(claim);
    await bench.kubelet.prepare(pod);
    expect(seen(pod)).toEqual(filesOf({ nic: 'nic', [generated]: generated }));
  });

  it('lead to the template claim if only another pod uses that ResourceClaim', async () => {
    const { bench, start, addPod, seen } = await stage();
    await start();
    const other = buildPod('other', { resourceClaims: [{ name: 'x', resourceClaimName: 'nic' }] });
    bench.api.create(buildClaim('nic', { ...request('dev-nic'), pods: [other] }));
    await bench.kubelet.prepare(other);
    const { pod, generated } = addPod('app', ofBoth.slice(0, 1));
    await bench.kubelet.prepare(pod);
    expect(seen(pod)).toEqual(filesOf({ nic: generated, [generated]: generated }));
    bench.api.delete('ResourceClaim', 'nic');
    const { pod: next, generated: its } = addPod('next', ofBoth.slice(0, 1));
    await bench.kubelet.prepare(next);
    expect(seen(next)).toEqual(filesOf({ nic: its, [its]: its }));
  });
});
