import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { resolveVfConfig } from '../../../src/driver/api/config.ts';
import { closedFields, DriverError } from '../../../src/driver/claims/index.ts';
import { explain } from '../../../src/lib/errors.ts';
import { CniError } from '../../../src/node/cni/index.ts';
import { buildClaim, testDriver } from '../../../test/doubles/objects.ts';
import { routeLimits, routeParameters, vfConfigParameters } from '../../../test/doubles/vf-config-arbitraries.ts';
import { ApiCluster } from './api-cluster.ts';

/** NETDRA_FUZZ_MINUTES: duration of all tests; NETDRA_FUZZ_SEED: repeats the same inputs. */
const minutes = Number(process.env.NETDRA_FUZZ_MINUTES ?? 0.3);
const seed = Number(process.env.NETDRA_FUZZ_SEED ?? Date.now());
const head = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };
/** By the name of the class. The first one opens everything, so that refusals are about the form only. */
const classes = new Map<string, object>([
  ['open', { ...head, limits: { routes: ['0.0.0.0/0', '::/0'] } }],
  ...fc
    .sample(routeLimits, { numRuns: 12, seed })
    .map((limits, index): [string, object] => [`limited-${index}`, { ...head, rdma: false, limits }]),
]);
let cluster: ApiCluster;

beforeAll(async () => {
  cluster = await ApiCluster.start({ values: { kubeletPlugin: { openClaimFields: closedFields } } });
  const selectors = [{ cel: { expression: `device.driver == "${testDriver}"` } }];
  for (const [name, parameters] of classes) {
    const config = [{ opaque: { driver: testDriver, parameters } }];
    const object = { apiVersion: 'resource.k8s.io/v1', kind: 'DeviceClass', metadata: { name } };
    await cluster.create({ ...object, spec: { selectors, config } } as never);
  }
  await vi.waitFor(async () => expect(await byPolicy('open', { kind: 'Other' })).toBeDefined(), { timeout: 30_000 });
  // The policies see classes shortly after these are created.
  for (const name of [...classes.keys()].slice(1)) {
    const judge = async () => expect(await byPolicy(name, { ...head, rdma: true })).toContain('rdma to true');
    await vi.waitFor(judge, { timeout: 30_000, interval: 250 });
  }
}, 180_000);
afterAll(async () => await cluster?.[Symbol.asyncDispose]());

/** The API server's reason to refuse a claim with these parameters; `undefined` if it accepts the claim. */
async function byPolicy(className: string, parameters: object): Promise<string | undefined> {
  const devices = {
    requests: [{ name: 'vf', exactly: { deviceClassName: className } }],
    config: [{ opaque: { driver: testDriver, parameters } }],
  };
  const body = {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceClaim',
    metadata: { name: 'judged' },
    spec: { devices },
  };
  const path = '/apis/resource.k8s.io/v1/namespaces/default/resourceclaims';
  return await cluster.admin.client
    .request({ method: 'POST', path, query: { dryRun: 'All' }, body })
    .then(() => undefined, explain);
}

/** Checks that a policy cannot make: combinations of fields of claim and class, and rules of the plugins. */
const beyondForm =
  /needs attach|needs either|needs an interface|does not go with|needs vf\.vlan|must not be above|no interface that/;

/** The driver's reason to refuse a claim's parameters for their form or the class's limits; `undefined` if it accepts them. */
function byDriver(className: string, parameters: object): string | undefined {
  const object = buildClaim('judged', {
    requests: [{ name: 'vf', deviceClassName: className, devices: ['vf-0'] }],
    config: [
      { source: 'FromClass', parameters: classes.get(className) ?? {} },
      { source: 'FromClaim', parameters },
    ],
  });
  const { namespace, name, uid } = object.metadata;
  const claim = { identity: { namespace, name, uid }, podClaimName: undefined, results: [], podUids: [], object };
  try {
    resolveVfConfig(testDriver, claim, 'vf', { open: closedFields, nodeNetworks: [] });
    return undefined;
  } catch (error) {
    if (error instanceof CniError) return undefined;
    if (!(error instanceof DriverError)) throw error;
    return beyondForm.test(error.message) ? undefined : explain(error);
  }
}

describe('admission policy and driver', { tags: 'newest' }, () => {
  it.each<[string, string[], fc.Arbitrary<Record<string, unknown>>]>([
    ['the form of every VFConfig', ['open'], vfConfigParameters],
    ['addresses and routes within the limits of a class', [...classes.keys()], routeParameters],
  ])(
    'agree on %s',
    async (_what, names, generated) => {
      const counts = { taken: 0, refused: 0 };
      await fc.assert(
        fc.asyncProperty(fc.constantFrom(...names), generated, async (name, parameters) => {
          const [policy, driver] = [await byPolicy(name, parameters), byDriver(name, parameters)];
          counts[driver === undefined ? 'taken' : 'refused']++;
          if ((policy === undefined) === (driver === undefined)) return;
          const ofClass = JSON.stringify(classes.get(name));
          throw new Error(`class: ${ofClass}\npolicy: ${policy ?? 'takes it'}\ndriver: ${driver ?? 'takes it'}`);
        }),
        { numRuns: 10_000_000, interruptAfterTimeLimit: (minutes * 60_000) / 2, seed },
      );
      console.info(`seed ${seed}: ${counts.taken} configurations taken and ${counts.refused} refused by both`);
      expect(counts.taken).toBeGreaterThan(5);
      expect(counts.refused).toBeGreaterThan(5);
    },
    minutes * 60_000 + 120_000,
  );
});
