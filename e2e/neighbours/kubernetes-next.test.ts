import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { repository } from '../../scripts/run-command.ts';
import type { DeviceList } from '../../src/driver/devices/device-list.ts';
import { toDeviceStatuses } from '../../src/driver/sandbox/status-report.ts';
import { toAllocatedStatus } from '../../src/framework/claimstatus/device-status.ts';
import { KubeletPluginError } from '../../src/framework/kubeletplugin/index.ts';
import { chooseSocketPaths } from '../../src/framework/kubeletplugin/socket-paths.ts';
import { isSameSpec } from '../../src/framework/resourceslice/compare.ts';
import type { Pool, ResourceSlice } from '../../src/framework/resourceslice/index.ts';
import type { SliceSpec } from '../../src/framework/resourceslice/model.ts';
import { planPool } from '../../src/framework/resourceslice/pool-plan.ts';
import { defined } from '../../src/lib/defined.ts';
import { buildClaim, buildNode, buildPod, testDriver, testNode } from '../../test/doubles/objects.ts';
import {
  claimOf,
  node,
  type open,
  scanned,
  useCards,
  writePolicy,
} from '../../test/unit/driver/devices/device-list-bench.ts';
import { Bench } from '../../test/unit/framework/kubeletplugin/bench.ts';
import { badDevices, fullDevice, many, sharedCounters } from '../../test/unit/framework/resourceslice/device-table.ts';
import { ensureGoPrograms, pinnedVersion } from '../go/build.ts';
import { parseObjects } from '../release/chart.ts';
import { kubernetesNext } from './programs.ts';

interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  spec: object;
  status?: object;
}

interface Answer<T> {
  result: T;
  refused?: string;
}

interface Allocation {
  devices: { results: { request: string; device: string; shareID?: string; consumedCapacity?: object }[] };
}

const now = '2026-01-01T00:00:00Z';
const lists = 'DRAListTypeAttributes=true';
const files = ['deploy/manifests/netdra.yaml'].concat(
  readdirSync(join(repository, 'examples'))
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => join('examples', name)),
);
/** Objects in a file whose groups the program knows. */
const objectsIn = (file: string) =>
  (parseObjects(readFileSync(join(repository, file), 'utf8')) as KubeObject[]).filter(({ apiVersion }) =>
    /^(resource|admissionregistration)\.k8s\.io\//.test(apiVersion),
  );

const ownSlices = (pool: Pool) =>
  planPool({
    driver: testDriver,
    nodeName: testNode,
    poolName: testNode,
    pool,
    actual: [],
    published: undefined,
  }).writes.map(({ name, spec }): ResourceSlice & KubeObject => ({
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceSlice',
    metadata: { name },
    spec,
  }));
const slicesOf = (list: DeviceList) =>
  ownSlices({ devices: list.offered(), sharedCounters: list.sharedCounters(), maxDevicesPerSlice: 64 });

/** A device that claims share, each with as much of it as it requests. */
const shared = {
  name: 'shared',
  attributes: { kind: { string: 'vf' } },
  allowMultipleAllocations: true,
  capacity: { bandwidth: { value: '10G', requestPolicy: { default: '1G', validRange: { min: '1G', step: '1G' } } } },
};

describe(`Kubernetes ${pinnedVersion(kubernetesNext, 'k8s.io/kubernetes')}, unreleased`, () => {
  useCards();
  let program: string;
  beforeAll(async () => {
    program = join(await ensureGoPrograms(cacheFolder(process.env), kubernetesNext, console.error), kubernetesNext);
  });

  /** @throws Error with the program's stderr */
  async function ask<T = KubeObject>(questions: object[], ...gates: string[]): Promise<Answer<T>[]> {
    const answer = promisify(execFile)(program, gates, { maxBuffer: 2 ** 26 });
    answer.child.stdin?.end(questions.map((each) => JSON.stringify(each)).join('\n'));
    const { stdout } = await answer;
    return stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
  }

  async function expectStored(objects: KubeObject[], ...gates: string[]): Promise<void> {
    expect(objects).not.toEqual([]);
    const questions = objects.map((create) => ({ create }));
    for (const [index, { result, refused }] of (await ask(questions, ...gates)).entries()) {
      const { kind, spec, status } = objects[index]!;
      expect(refused).toBeUndefined();
      if (kind !== 'ResourceSlice') expect(result).toMatchObject({ spec, ...defined({ status }) });
      // Quantities are stored in another form, so this compares as the driver does.
      else expect(isSameSpec(result.spec as SliceSpec, spec as SliceSpec), JSON.stringify(result)).toBe(true);
    }
  }

  describe('the API server', () => {
    it.each(files.filter((file) => objectsIn(file).length > 0))('stores every field of %s', async (file) => {
      await expectStored(objectsIn(file));
    });

    it.each<[string, Parameters<typeof open>[1], ...string[]]>([
      ['', {}],
      [', with NUMA nodes as lists', { listAttributes: true, nearNodes: (own) => [own] }, lists],
    ])('stores slices with counters and taints%s', async (_how, more, ...gates) => {
      node.change('enp1s0f0', { carrier: false });
      const list = await scanned(writePolicy('pfs: [{ select: {}, bandwidth: { guaranteedMbps: 400 } }]'), more);
      const slices = slicesOf(list);
      expect(JSON.stringify(slices)).toMatch(/"sharedCounters".*"consumesCounters".*"taints"/);
      await expectStored(slices, ...gates);
    });

    it('stores devices at all limits, and shared devices', async () => {
      await expectStored(ownSlices({ devices: [fullDevice, shared], sharedCounters }), lists);
    });

    const deviceData = { interfaceName: 'net1', hardwareAddress: '02:00:00:00:00:01' };
    /** A claim in use, with the status that we write of its VF. */
    function claimWith(stateOf: Parameters<typeof toDeviceStatuses>[1]): KubeObject {
      const own = claimOf({ name: 'vf-0', pool: testNode, config: { attach: 'netlink', vf: { vlan: 100 } } });
      const claim = buildClaim('fast-net', {
        requests: [{ name: 'vf', devices: ['vf-0'] }],
        pods: [buildPod('reader')],
        config: [{ source: 'FromClass', parameters: { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' } }],
      });
      const devices = toDeviceStatuses(own, stateOf).map((each) => toAllocatedStatus(testDriver, each, [], now));
      return { ...claim, status: { ...claim.status, devices } } as unknown as KubeObject;
    }
    const attached = (ips: string[]) => claimWith(() => ({ networkData: { ...deviceData, ips } }));

    it('stores claim status', async () => {
      await expectStored([attached(['192.0.2.7/24', '2001:db8::7/64']), claimWith(() => undefined)]);
    });

    /** The first object of that kind in a file, with one text in place of another. */
    const spoilt = (file: string, kind: string, from: string, to: string): KubeObject =>
      JSON.parse(JSON.stringify(objectsIn(file).find((each) => each.kind === kind)).replace(from, to));
    it.each<[string, KubeObject, RegExp]>([
      ['an address without a prefix in a status', attached(['192.0.2.7']), /networkData\.ips\[0\]/],
      [
        'a class with broken CEL',
        spoilt(files[0]!, 'DeviceClass', ' == ', ' = '),
        /selectors\[0\].*compilation failed/,
      ],
      ['a policy with broken CEL', spoilt(files[0]!, 'ValidatingAdmissionPolicy', ' == ', ' = '), /compilation failed/],
      [
        'a claim with an unknown field',
        spoilt('examples/bond.yaml', 'ResourceClaim', 'exactly', 'exact'),
        /unknown field/,
      ],
      [
        'a claim with two slashes in an attribute',
        spoilt('examples/bond.yaml', 'ResourceClaim', 'dev/pf', 'dev/a/pf'),
        /distinctAttribute.*more than one slash/,
      ],
    ])('rejects %s', async (_what, create, reason) => {
      expect((await ask([{ create }]))[0]?.refused).toMatch(reason);
    });
  });

  describe('the API server, or the kubelet plugin helper before it', () => {
    const ofHelper = ["the driver's own domain", 'an unknown counter set', 'an unknown counter'];
    // No JSON can hold a bigint, and only JavaScript cannot represent a number beyond 2^53.
    const bad = badDevices.filter(([what]) => !['a bigint', 'a number beyond 2^53'].includes(what));
    it.each(bad)('rejects %s, as netdra does', async (what, more) => {
      const devices = [{ name: 'vf', ...more }];
      const [plain] = ownSlices({ devices: [] });
      const create = { ...plain, spec: { ...plain?.spec, devices } };
      const publish = { driver: testDriver, slices: [{ devices }, { sharedCounters }] };
      const [{ refused } = {}] = await ask<unknown>([{ create }], lists);
      if (!ofHelper.includes(what)) return expect(refused).toMatch(/spec\.devices\[0\]|cannot|unable|quantities/);
      expect(refused).toBeUndefined();
      expect((await ask([{ publish }]))[0]?.refused).toMatch(/use unqualified "mtu"|not found/);
    });
  });

  describe('the scheduler', () => {
    const classes = files.flatMap(objectsIn).filter(({ kind }) => kind === 'DeviceClass');
    /** The claims that pods of an example have, repeated. */
    const claimsIn = (name: string, count = 1) =>
      many(count, (n) =>
        objectsIn(join('examples', name)).flatMap(({ kind, metadata, spec }) => {
          const claim = {
            metadata: { name: `${metadata.name}-${n}`, namespace: 'default', uid: `${metadata.name}-${n}` },
          };
          if (kind === 'ResourceClaim') return [{ ...claim, spec }];
          return kind === 'ResourceClaimTemplate' ? [{ ...claim, ...spec }] : [];
        }),
      ).flat();
    const allocate = async (slices: object[], claims: object[], ...gates: string[]) => {
      const [answer] = await ask<Allocation[] | null>([{ allocate: { slices, classes, claims } }], ...gates);
      const results = (answer?.result ?? []).map(({ devices }) => devices.results);
      return { results, refused: answer?.refused };
    };
    const guarantees = 'pfs: [{ select: {}, bandwidth: { guaranteedMbps: 400 } }]';

    it.each<[string, string, string, object, number]>([
      ['each VF once', 'kernel-mode.yaml', '', {}, 9],
      ['VFs as long as their port has bandwidth', 'kernel-mode.yaml', guarantees, {}, 7],
      ['no VF with a taint', 'kernel-mode.yaml', '', { carrier: false }, 6],
      ['VFs with a taint to claims that tolerate it', 'tolerations.yaml', '', { carrier: false }, 9],
    ])('allocates %s', async (_what, example, policy, link, count) => {
      node.change('enp1s0f0', link);
      const slices = slicesOf(await scanned(writePolicy(policy)));
      const { results, refused } = await allocate(slices, claimsIn(example, count + 1));
      expect(new Set(results.flat().map(({ device }) => device)).size).toBe(count);
      expect(refused).toMatch(new RegExp(`^claim .*-${count} cannot be allocated`));
    });

    it('allocates VFs of two PFs for a bond', async () => {
      const { results, refused } = await allocate(slicesOf(await scanned()), claimsIn('bond.yaml'));
      expect(refused).toBeUndefined();
      expect(new Set(results.flat().map(({ device }) => device.slice(0, 7) + device.slice(-1))).size).toBe(2);
    });

    it('allocates VFs whose lists of NUMA nodes overlap', async () => {
      const list = await scanned(undefined, { listAttributes: true, nearNodes: (own) => [own, 0] });
      const { results, refused } = await allocate(slicesOf(list), claimsIn('multi-nic.yaml'), lists);
      expect(refused).toBeUndefined();
      const [left, right] = results.flat();
      expect([left?.device, right?.device]).toEqual([
        expect.stringMatching(/^0000-17/),
        expect.stringMatching(/^0000-17/),
      ]);
    });

    it('allocates shares of a device up to its capacity', async () => {
      const claims = many(3, (n) => ({
        metadata: { name: `share-${n}`, namespace: 'default', uid: `share-${n}` },
        spec: {
          devices: {
            requests: [
              {
                name: 'vf',
                exactly: {
                  deviceClassName: 'netdra-kernel',
                  allocationMode: 'ExactCount',
                  count: 1,
                  capacity: { requests: { bandwidth: '4G' } },
                },
              },
            ],
          },
        },
      }));
      const { results, refused } = await allocate(ownSlices({ devices: [shared] }), claims);
      const share = { device: 'shared', shareID: expect.any(String), consumedCapacity: { bandwidth: '4G' } };
      expect(results.flat()).toMatchObject([share, share]);
      expect(refused).toMatch(/^claim share-2 cannot be allocated/);
    });
  });

  describe('the kubelet', () => {
    const longest = `/${'d'.repeat(97)}`;
    it.each<[string, boolean]>([
      ['/var/lib/kubelet/plugins/sriov.netdra.dev', true],
      ['/with space [and] brackets:', true],
      [longest, true],
      [`${longest}d`, false],
      ['relative', false],
      ...['%41', '%', '?', '#', '\n'].map((part): [string, boolean] => [`/a${part}b`, false]),
    ])('decides whether to connect to plugins in directory %j as netdra does: %s', async (dataDir, isAccepted) => {
      const [answer] = await ask([{ endpoint: join(dataDir, 'dra.sock') }]);
      const choose = () => chooseSocketPaths({ driver: testDriver, dataDir, registryDir: '/registry' });
      expect(answer?.refused === undefined).toBe(isAccepted);
      if (isAccepted) expect(choose().dra).toBe(join(dataDir, 'dra.sock'));
      else expect(choose).toThrow(KubeletPluginError);
    });

    it('registers the plugin helper of netdra, which prepares and unprepares the claims of a pod', async () => {
      const bench = await Bench.start();
      onTestFinished(() => bench[Symbol.asyncDispose]());
      bench.api.create(buildNode());
      const ended: string[] = [];
      await bench.startHelper({
        unprepareResourceClaims: async (claims) => {
          ended.push(...claims.map(({ name }) => name));
          return new Map(claims.map(({ uid }) => [uid, undefined]));
        },
      });
      const { pod, claim } = bench.addPod('web-0');
      const kubeconfig = join(bench.dir, 'kubeconfig');
      await bench.api.writeKubeconfig(kubeconfig);
      const question = { kubelet: { kubeconfig, registry: bench.registryDir, stateDir: bench.dir, pod } };
      const [answer] = await ask([question]);
      expect(answer).toEqual({ result: [{ Name: `${testDriver}/metadata=${claim.metadata.uid}_vf` }] });
      expect(ended).toEqual(['web-0']);
    });
  });
});
