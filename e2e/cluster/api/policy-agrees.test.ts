import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { checkBonds } from '../../../src/driver/api/bond-rules.ts';
import { classConfigSchema } from '../../../src/driver/api/class-config.ts';
import { resolveVfConfig } from '../../../src/driver/api/config.ts';
import { closedFields, DriverError } from '../../../src/driver/model/index.ts';
import { isKubeError } from '../../../src/framework/kube/index.ts';
import { explain } from '../../../src/lib/errors.ts';
import { CniError } from '../../../src/node/cni/index.ts';
import { buildClaim, testDriver } from '../../../test/doubles/objects.ts';
import { storedDevice } from '../../../test/doubles/stored-claims.ts';
import { vfConfigParameters } from '../../../test/doubles/vf-config-arbitraries.ts';
import { readFuzzAmount } from '../../../test/fuzz/amount.ts';
import { ApiCluster } from './api-cluster.ts';

const { amount, timeoutMs } = readFuzzAmount(150, 1);
const head = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };
/** It opens everything, so that refusals are about the form only. */
const openClass = {
  ...head,
  overridable: [
    'attach',
    'ipam',
    'keepHostConfig',
    'addressPool.name',
    'addressPool.key',
    'slaac',
    'cni',
    'networkAttachmentDefinition',
    'sysctls',
  ],
  limits: { routes: ['0.0.0.0/0', '::/0'] },
};
const className = 'open';
let cluster: ApiCluster;

beforeAll(async () => {
  cluster = await ApiCluster.start({ values: { kubeletPlugin: { openClaimFields: closedFields } } });
  await vi.waitFor(async () => expect(await byPolicy({ kind: 'Other' })).toBeDefined(), { timeout: 30_000 });
}, 180_000);
afterAll(async () => await cluster?.[Symbol.asyncDispose]());

/** The API server's reason to refuse a claim with these parameters; `undefined` if it accepts the claim. */
async function byPolicy(parameters: object): Promise<string | undefined> {
  const config = [{ opaque: { driver: testDriver, parameters } }];
  return await ofApiServer([{ name: 'vf', exactly: { deviceClassName: className, count: 2 } }], config);
}

async function ofApiServer(requests: object[], config: object[]): Promise<string | undefined> {
  const devices = { requests, config };
  const body = {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceClaim',
    metadata: { name: 'judged' },
    spec: { devices },
  };
  const path = '/apis/resource.k8s.io/v1/namespaces/default/resourceclaims';
  return await refusalBy({ path, body });
}

/** The API server's reason to refuse a class with these configurations. */
async function classByPolicy(...configs: object[]): Promise<string | undefined> {
  const body = {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'DeviceClass',
    metadata: { name: 'judged' },
    spec: { config: configs.map((parameters) => ({ opaque: { driver: testDriver, parameters } })) },
  };
  return await refusalBy({ path: '/apis/resource.k8s.io/v1/deviceclasses', body });
}

/** The API server's reason to refuse an object, which is not stored. */
async function refusalBy(what: { path: string; body: object }): Promise<string | undefined> {
  const request = { method: 'POST', query: { dryRun: 'All' }, ...what } as const;
  // An API server without an answer has not judged.
  return await vi.waitFor(() => cluster.admin.client.request(request).then(() => undefined, refusalOf), 30_000);
}

function refusalOf(error: unknown): string {
  if (isKubeError(error, 'api-invalid', 'api-forbidden')) return explain(error);
  throw error;
}

/** Checks that a policy does not make: combinations of fields of claim and class, and rules of the plugins. */
const beyondForm =
  /needs attach|needs either|needs an interface|cannot be combined with (attach|addressPool)|addressPool\.name: is needed|needs vf\.vlan|must not be above|no interface that|source is|in neighbors\[|keeps neighbors only|kernel already has a route| twice|keepHostConfig takes|is IPv6|slaac: sysctls sets|and vrf \S+ has table/;

/** The driver's reason to refuse a claim's parameters for their form; `undefined` if it accepts them. */
function byDriver(parameters: object): string | undefined {
  const object = buildClaim('judged', {
    requests: [{ name: 'vf', deviceClassName: className, devices: ['vf-0'] }],
    config: [
      { source: 'FromClass', parameters: openClass },
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
    const isBeyond = beyondForm.test(error.message) && !/bond: .* cannot be combined with/.test(error.message);
    return isBeyond ? undefined : explain(error);
  }
}

/** An entry of a claim's configuration: for these requests, the fields of a VFConfig. */
type Entry = [requests: string[], fields: object];

/**
 * The driver's reason to refuse a claim for its bonds, with a VF of another PF for each request.
 * @param ofLeft fields that only the class of the first request has
 */
function bondsByDriver(entries: readonly Entry[], ofLeft: object = {}, names = ['left', 'right']): string | undefined {
  const requests = names.map((name) => ({ name, deviceClassName: `${className}-${name}`, devices: [`vf-${name}`] }));
  const ofClasses = names.map((name) => {
    const parameters = { ...openClass, ...(name === 'left' && ofLeft) };
    return { source: 'FromClass' as const, requests: [name], parameters };
  });
  const ofClaim = entries.map(([names, fields]) => {
    return { source: 'FromClaim' as const, requests: names, parameters: { ...head, ...fields } };
  });
  const config = [...ofClasses, ...ofClaim];
  const object = buildClaim('judged', { requests, config });
  const { namespace, name, uid } = object.metadata;
  const claim = { identity: { namespace, name, uid }, podClaimName: undefined, results: [], podUids: [], object };
  try {
    const rules = { open: closedFields, nodeNetworks: [] };
    const devices = requests.map(({ name: request }) => {
      const place = { pciAddress: request, pfAddress: `pf-${request}`, name: `vf-${request}` };
      return storedDevice({ ...place, request, config: resolveVfConfig(testDriver, claim, request, rules) });
    });
    checkBonds(claim, devices);
    return undefined;
  } catch (error) {
    if (!(error instanceof DriverError)) throw error;
    return explain(error);
  }
}

/** The API server's reason to refuse the same claim. */
async function bondsByPolicy(entries: readonly Entry[], names = ['left', 'right']): Promise<string | undefined> {
  const requests = names.map((name) => ({ name, exactly: { deviceClassName: `${className}-${name}` } }));
  const config = entries.map(([names, fields]) => {
    return { requests: names, opaque: { driver: testDriver, parameters: { ...head, ...fields } } };
  });
  return await ofApiServer(requests, config);
}

describe('admission policy and driver', { tags: 'newest' }, () => {
  const bond = { name: 'bond0' };
  const sysctl = (key: string) => `net.ipv4.conf.IFNAME.${key}`;
  it.each<[string, Entry[], RegExp | undefined]>([
    [
      'accept one entry for two requests',
      [[['left', 'right'], { bond, mtu: 1400, addresses: ['192.0.2.7/24'] }]],
      undefined,
    ],
    [
      'accept one entry for each request',
      [
        [['left'], { bond }],
        [['right'], { bond }],
        [[], { mtu: 1400 }],
      ],
      undefined,
    ],
    [
      'accept an interface name for one member only',
      [
        [[], { bond }],
        [['left'], { interfaceName: 'left' }],
      ],
      undefined,
    ],
    [
      'accept the same MTU in an entry for each member',
      [
        [[], { bond }],
        [['left'], { mtu: 1400, interfaceName: 'left' }],
        [['right'], { mtu: 1400, interfaceName: 'right' }],
      ],
      undefined,
    ],
    [
      'accept the same MTU, once in the entry of the bond and once in another entry',
      [
        [['left'], { bond, mtu: 1400 }],
        [['right'], { bond }],
        [['right'], { mtu: 1400 }],
      ],
      undefined,
    ],
    [
      'accept an entry that replaces the bond of an earlier entry',
      [
        [[], { bond: { ...bond, miimon: 50 } }],
        [['left'], { bond }],
        [['right'], { bond }],
      ],
      undefined,
    ],
    [
      'accept the same sysctls, in one entry or in two',
      [
        [['left'], { bond, sysctls: { [sysctl('arp_ignore')]: 1, [sysctl('rp_filter')]: 2 } }],
        [['right'], { bond, sysctls: { [sysctl('arp_ignore')]: 1 } }],
        [['right'], { sysctls: { [sysctl('rp_filter')]: 2 } }],
      ],
      undefined,
    ],
    [
      'accept an entry that replaces the DPDK driver and the attach mode of an earlier entry',
      [
        [[], { bond, driver: 'vfio-pci', attach: 'observe' }],
        [[], { driver: 'kernel', attach: 'netlink' }],
      ],
      undefined,
    ],
    [
      'reject two bonds with one member each',
      [
        [['left'], { bond }],
        [['right'], { bond: { name: 'bond1' } }],
      ],
      /bond:? "?bond0"? has one member/,
    ],
    [
      'reject an MTU for one member, in an entry without the bond',
      [
        [[], { bond, mtu: 1500 }],
        [['left'], { mtu: 1400 }],
      ],
      /1400.* all members/,
    ],
    [
      'reject a different sysctl value for one member',
      [
        [[], { bond, sysctls: { [sysctl('rp_filter')]: 1 } }],
        [['right'], { sysctls: { [sysctl('rp_filter')]: 2 } }],
      ],
      /rp_filter.* all members/,
    ],
    [
      'reject two bonds with the same name',
      [
        [['left'], { bond }],
        [['right'], { bond: { ...bond, miimon: 50 } }],
      ],
      /bond0.*50/,
    ],
    [
      'reject two different MTUs',
      [
        [['left'], { bond, mtu: 1400 }],
        [['right'], { bond, mtu: 1500 }],
      ],
      /1400.*1500/,
    ],
    [
      'reject different addresses for one member',
      [
        [[], { bond, addresses: ['192.0.2.8/24'] }],
        [['left'], { addresses: ['192.0.2.7/24'] }],
      ],
      /192\.0\.2\.7\/24/,
    ],
    ['reject a bond without a name', [[[], { bond: {} }]], /bond of a VFConfig|bond\.name/],
    ['reject an unknown bond mode', [[[], { bond: { ...bond, mode: 'balance-xyz' } }]], /bond/],
    [
      'reject a bond attached by CNI plugins',
      [[[], { bond, attach: 'cni', cni: { type: 'x' } }]],
      /bond0 cannot be combined with attach "?cni/,
    ],
    [
      'reject a bond attached by Multus',
      [[[], { bond, attach: 'observe' }]],
      /bond0 cannot be combined with attach "?observe/,
    ],
    ['reject a bond for DPDK', [[[], { bond, driver: 'vfio-pci' }]], /bond0 cannot be combined with driver "?vfio-pci/],
  ])('agree on claims with a bond: %s', async (_, entries, reason) => {
    for (const answer of [await bondsByPolicy(entries), bondsByDriver(entries)]) {
      if (reason === undefined) expect(answer).toBeUndefined();
      else expect(answer).toMatch(reason);
    }
  });

  it('agree on a claim whose only request has a bond', async () => {
    const entries: Entry[] = [
      [['left'], { bond }],
      [['left'], { bond }],
    ];
    for (const answer of [await bondsByPolicy(entries, ['left']), bondsByDriver(entries, {}, ['left'])])
      expect(answer).toMatch(/bond:? "?bond0"? has one member/);
  });

  // The policy does not know the classes.
  const addresses = ['192.0.2.7/24'];
  const routes = [{ destination: '198.51.100.0/24', gateway: '192.0.2.1' }];
  it.each<[string, ofLeft: object, ofRight: object]>([
    ['MTU', { mtu: 9000 }, { mtu: 9000 }],
    ['addresses', { addresses }, { addresses }],
    ['routes', { routes }, { routes }],
    ['IPAM', { ipam: { type: 'static' } }, { ipam: { type: 'static' } }],
    ['sysctl', { sysctls: { [sysctl('arp_ignore')]: 1 } }, { sysctls: { [sysctl('arp_ignore')]: 1 } }],
    ['bond', { bond }, {}],
  ])("accept a bond whose members agree, if one member's %s comes from its class", async (_, ofLeft, ofRight) => {
    const isOfClass = 'bond' in ofLeft;
    const entries: Entry[] = [
      [isOfClass ? ['right'] : [], { bond }],
      [['right'], ofRight],
    ];
    expect(await bondsByPolicy(entries)).toBeUndefined();
    expect(bondsByDriver(entries, ofLeft)).toBeUndefined();
    expect(bondsByDriver(entries)).toMatch(/all members have to ask for the same|has one member/);
  });

  it.each([
    '0',
    '4094',
    '100-199',
    '9-10',
    '7-7',
    '10-9',
    '200-100',
    '100-4095',
    '4095-4096',
    '5000',
    '01',
    '-7',
    '7-',
    'x',
    '',
  ])('agree on the VLAN range %j of a class', async (range) => {
    const parameters = { ...head, limits: { vlanRanges: [range] } };
    const policy = await classByPolicy(parameters);
    if (classConfigSchema.safeParse(parameters).success) expect(policy).toBeUndefined();
    else expect(policy).toMatch(/limits of a VFConfig has a value that is not allowed/);
  });

  it('accept a class with a bond for DPDK only if claims may set the driver', async () => {
    const parameters = { ...head, bond, driver: 'vfio-pci' };
    expect(await classByPolicy(parameters)).toMatch(/bond bond0 cannot be combined with driver vfio-pci/);
    expect(await classByPolicy({ ...parameters, overridable: ['driver'] })).toBeUndefined();
    expect(await classByPolicy(parameters, { ...head, driver: 'kernel' })).toBeUndefined();
  });

  it('leave a bond member that names no request of the claim to the API server, which rejects it', async () => {
    const requests = [{ name: 'left', exactly: { deviceClassName: className } }];
    const config = [{ requests: ['left', 'lost'], opaque: { driver: testDriver, parameters: { ...head, bond } } }];
    expect(await ofApiServer(requests, config)).toMatch(/lost.*must be the name of a request/);
  });

  it(
    'agree on the syntax of every VFConfig',
    async () => {
      const counts = { taken: 0, refused: 0 };
      await fc.assert(
        fc.asyncProperty(vfConfigParameters, async (parameters) => {
          const [policy, driver] = [await byPolicy(parameters), byDriver(parameters)];
          counts[driver === undefined ? 'taken' : 'refused']++;
          if ((policy === undefined) === (driver === undefined)) return;
          throw new Error(`policy: ${policy ?? 'takes it'}\ndriver: ${driver ?? 'takes it'}`);
        }),
        amount,
      );
      console.info(`seed ${amount.seed}: ${counts.taken} configurations taken and ${counts.refused} refused by both`);
      expect(counts.taken).toBeGreaterThan(5);
      expect(counts.refused).toBeGreaterThan(5);
    },
    timeoutMs,
  );

  it('ignore parameters for other drivers', async () => {
    const requests = [{ name: 'gpu', exactly: { deviceClassName: 'gpu.example.com' } }];
    const parameters = { kind: 'VFConfig', bond: 1, mtu: 'much' };
    expect(await ofApiServer(requests, [{ opaque: { driver: 'gpu.example.com', parameters } }])).toBeUndefined();
  });
});
