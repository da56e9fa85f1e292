import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { formatContainer, parseContainer } from '../../../../nri/container.ts';
import { createTrim } from '../../../../nri/decoded-fields.ts';
import type { PodSandbox } from '../../../../nri/index.ts';
import { createNriCodec } from '../../../../nri/wire.ts';
import { claimMarker, decodedFields, NumaGuard } from '../../../../src/driver/sandbox/index.ts';
import type { ClaimMetadata, ClaimMetadataOptions } from '../../../../src/framework/metadata/index.ts';
import { readCdi } from '../../../doubles/cdi.ts';
import { storedClaim, storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';
import { Bench } from '../../framework/metadata/bench.ts';

const { containerRequest } = createNriCodec();
const identity = { namespace: 'apps', name: 'nic', uid: 'uid-nic' };
const pod = {
  id: 's1',
  uid: 'pod-1',
  namespace: 'apps',
  name: 'dpdk',
  cgroupParent: '/kubepods/podpod-1',
} as PodSandbox;
const gate = { program: '/opt/netdra/netdra-gate', timeoutSeconds: 100 };
const startGates: { start: string; options: Partial<Pick<ClaimMetadataOptions, 'gate'>> }[] = [
  { start: 'hook', options: { gate } },
  { start: 'file', options: {} },
];

/** A claim with a device on each of two NUMA nodes, for the request of the same name. */
const claim = storedClaim({
  identity,
  podUids: [pod.uid],
  devices: [0, 1].map((numaNode) => {
    const offered = { ...storedDevice().offered, numaNode };
    return storedDevice({ name: `vf-${numaNode}`, request: `r${numaNode}`, config: { numa: 'require' }, offered });
  }),
});

describe.each(startGates)('a container as the driver decodes it, with the start gate $start', ({ options }) => {
  let bench: Bench;
  let metadata: ClaimMetadata;
  let ids: Map<string, string>;
  let guard: NumaGuard;
  beforeEach(async () => {
    bench = new Bench();
    metadata = bench.start({ marker: claimMarker, ...options });
    const requests = Object.fromEntries(
      claim.devices.map(({ request, pool, name }) => [request, { name: request, devices: [{ pool, name }] }]),
    );
    const record = { claim: identity, podUid: pod.uid, requests };
    ids = await metadata.prepare(record, new Map());
    guard = new NumaGuard({
      store: storedClaims(() => [claim]),
      metadata,
      numaNodes: () => new Map([0, 1].map((node) => [node, new Set([2 * node, 2 * node + 1])])),
      onCompared: () => undefined,
      onMisaligned: () => undefined,
      onCondition: () => undefined,
    });
  });
  afterEach(() => bench[Symbol.dispose]());

  /** @param own mounts that its author has written */
  function containerWith(requests: readonly string[], cpus: string, own: readonly string[] = ['/volumes/v']) {
    const edits = readCdi(
      bench.cdiDir,
      requests.map((request) => ids.get(request) ?? ''),
    );
    const sources = [...own, ...edits.mounts.map(({ hostPath }) => hostPath)];
    const sent = formatContainer({
      id: 'c',
      name: 'main',
      args: ['sleep'],
      env: ['PATH=/bin', ...edits.env],
      mounts: sources.map((source, n) => ({ destination: `/${n}`, type: 'bind', source, options: ['ro', 'bind'] })),
      createRuntimeHooks: edits.hooks,
      cpu: { cpus, mems: '', shares: 1_024 * cpus.split(',').length },
    });
    const trim = createTrim(decodedFields(metadata.mountSources), { pod: 1, container: 2 });
    return parseContainer(containerRequest.decode(trim(containerRequest.encode({ container: sent }))).container ?? {});
  }

  it('has the mounts that show its requests, but no other mounts, variables or arguments of the pod spec', () => {
    const { args, env, mounts } = containerWith(['r0'], '0');
    expect(args).toEqual([]);
    expect(env).not.toContain('PATH=');
    expect(mounts.length).toBeGreaterThan(1);
    expect(mounts.filter(({ source }) => !source.startsWith(bench.path))).toEqual([]);
  });

  it('needs CPUs on the NUMA nodes of the devices of its own requests only', () => {
    expect(guard.check(pod, containerWith(['r0'], '0,1'))).toBe(true);
    expect(() => guard.check(pod, containerWith(['r1'], '0,1'))).toThrow(
      /its CPUs 0-1 are on NUMA node 0, and device vf-1 is on NUMA node 1$/,
    );
    // The device of the other request does not excuse its CPUs there.
    expect(() => guard.check(pod, containerWith(['r0'], '0,2'))).toThrow(/and device vf-0 is on NUMA node 0$/);
    expect(guard.check(pod, containerWith(['r0', 'r1'], '0,2'))).toBe(true);
  });

  it('needs CPUs on the NUMA nodes of all devices of the claim if it has too many mounts', () => {
    const own = Array<string>(1_000).fill(metadata.mountSources[0] ?? '');
    expect(() => guard.check(pod, containerWith(['r0'], '0', own))).toThrow(/and device vf-1 is on NUMA node 1$/);
  });
});
