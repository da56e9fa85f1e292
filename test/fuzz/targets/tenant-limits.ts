import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { createTrim } from '../../../nri/decoded-fields.ts';
import { createNriCodec } from '../../../nri/wire.ts';
import { checkAllocation } from '../../../src/driver/claims/allocation-check.ts';
import { DeviceResolver } from '../../../src/driver/claims/device-resolver.ts';
import { checkNesting } from '../../../src/driver/claims/nesting.ts';
import { DriverError } from '../../../src/driver/model/index.ts';
import { claimMarker, decodedFields } from '../../../src/driver/sandbox/index.ts';
import { exclusiveCpus } from '../../../src/driver/sandbox/numa-placement.ts';
import { mostPodLinks } from '../../../src/driver/vf/networks.ts';
import type { AllocatedClaim } from '../../../src/framework/kubeletplugin/index.ts';
import { ClaimMetadata, layouts } from '../../../src/framework/metadata/index.ts';
import { printable } from '../../../src/lib/printable.ts';
import { CniError } from '../../../src/node/cni/index.ts';
import { encodeAttributes } from '../../../src/node/netlink/attributes.ts';
import { maxListedRoutes, NetlinkError, parseCidr } from '../../../src/node/netlink/index.ts';
import { encodeLink, LinkAttribute } from '../../../src/node/netlink/link.ts';
import { encodeRoute, RouteAttribute } from '../../../src/node/netlink/route.ts';
import { parseCpuList } from '../../../src/node/numa/index.ts';
import { connectKernel, tableDatagrams } from '../../doubles/netlink-kernel.ts';
import { testDriver } from '../../doubles/objects.ts';
import { vfConfigParameters } from '../../doubles/vf-config-arbitraries.ts';
import { busyVariable, scratchDir } from '../scratch.ts';
import { expectThat, type FuzzTarget, isSame, jsonSeeds, parseJson } from '../target.ts';

/**
 * CPU time that the event loop may be held. `npm test` runs beside whatever else the machine does, which multiplied it by up to five:
 * there only what is far above the limit is found.
 */
const longestMs = () => (process.env[busyVariable] === undefined ? 50 : 500);
const attempts = 10;
const { synchronizeRequest } = createNriCodec();
const ownFiles = '/var/lib/kubelet/plugins/sriov.netdra.dev/dra-device-metadata/';
const trim = createTrim(decodedFields([ownFiles]), { pod: 1, container: 2 });
/** All that the API takes: requests and configurations of a claim, and bytes of parameters of a configuration. */
const most = { requests: 32, configs: 32, parameters: 10_240, environment: 1_048_576, claims: 128 };

/** What a tenant writes. Each part is repeated up to its limit. */
interface Written {
  /** Variables of a container. */
  env?: string[];
  /** Paths that a container mounts, on the host and in the container. */
  mounts?: string[];
  /** Opaque parameters of a claim. */
  parameters?: object[];
  /** Aliases and alternative names of links in a pod. */
  aliases?: string[];
  /** Destinations of routes in a pod, which have as many next hops as fit into a message. */
  routes?: string[];
  /** Names, annotations and results of plugins. */
  texts?: string[];
}

/** Runs a call, and again if it was slow: that may have been a garbage collection. @throws OracleError */
async function expectBrief(what: string, call: () => unknown): Promise<void> {
  const limitMs = longestMs();
  let least = Infinity;
  for (let attempt = 0; attempt < attempts && least > limitMs; attempt++) {
    least = Math.min(least, await longestTurn(call));
  }
  expectThat(least <= limitMs, `${what} held the event loop for ${Math.round(least)} ms`);
}

/** @returns CPU time of the longest turn of the event loop while a call runs, ms */
async function longestTurn(call: () => unknown): Promise<number> {
  let isOver = false;
  let longest = 0;
  let before = process.threadCpuUsage();
  const work = (async () => await call())()
    .catch((error: unknown) => {
      const isRefusal = [DriverError, CniError, NetlinkError].some((each) => error instanceof each);
      if (!isRefusal) throw error;
    })
    .finally(() => (isOver = true));
  do {
    await setImmediate();
    const { user, system } = process.threadCpuUsage(before);
    longest = Math.max(longest, (user + system) / 1000);
    before = process.threadCpuUsage();
  } while (!isOver);
  await work;
  return longest;
}

/** A part counts at least three bytes, as the shortest variable does: a name, an equals sign and the end. */
function repeated(parts: readonly string[], bytes: number): string[] {
  const all: string[] = [];
  for (let length = 0; length < bytes; ) {
    const part = parts[all.length % parts.length] ?? '';
    all.push(part);
    length += Math.max(3, part.length + 1);
  }
  return all;
}

function claimWith(parameters: readonly object[]): AllocatedClaim {
  const fitting = parameters.filter((each) => JSON.stringify(each).length <= most.parameters);
  const config = Array.from({ length: fitting.length === 0 ? 0 : most.configs }, (_, index) => {
    // A copy with another number, so that none is equal to another.
    const own = { ...structuredClone(fitting[index % fitting.length]), mtu: 1_280 + index };
    return { requests: [], opaque: { driver: testDriver, parameters: own } };
  });
  const requests = Array.from({ length: most.requests }, (_, n) => ({
    name: `r${n}`,
    exactly: { deviceClassName: 'c' },
  }));
  const results = requests.map(({ name }, n) => ({ request: name, driver: testDriver, pool: 'n', device: `d${n}` }));
  const allocated = structuredClone(config).map((each) => ({ ...each, source: 'FromClaim' }));
  const object = {
    spec: { devices: { requests, config } },
    status: { allocation: { devices: { results, config: allocated } } },
  };
  return { identity: { namespace: 'a', name: 'c', uid: 'u' }, results, podUids: ['p'], object } as never;
}

async function prepare(claim: AllocatedClaim): Promise<void> {
  checkNesting(testDriver, claim);
  const deviceClass = { metadata: { name: 'c' }, spec: { config: [] } };
  const { signal } = new AbortController();
  await checkAllocation(
    testDriver,
    { known: () => deviceClass, read: async () => deviceClass } as never,
    claim,
    signal,
  );
  const resolver = new DeviceResolver({
    driver: testDriver,
    inventory: { pool: 'n', find: (name: string) => ({ kind: 'vf', name, pciAddress: name }) },
    openClaimFields: [],
    cni: { uses: [], allowedPlugins: [], definitionNamespaces: [] },
    nodeNetworks: async () => Array.from({ length: 8 }, (_, n) => parseCidr(`10.${n}.0.5/16`)),
  } as never);
  await resolver.resolve(claim, new AbortController().signal);
}

async function createContainer(env: readonly string[]): Promise<void> {
  const [uids, mems] = [new Set(['u-0']), ''];
  for (const cpus of ['0-7', env.join(',')]) {
    exclusiveCpus({ cgroupParent: '/kubepods/burstable' }, { env: [...env], cpu: { cpus, mems, shares: 2 } }, uids);
  }
  parseCpuList(env.join(','));
  const metadata = claimMetadata();
  const container = { env, createRuntimeHooks: [] };
  for (let n = 0; n < most.claims; n++) metadata.isUsedBy({ namespace: 'a', name: 'c', uid: `u-${n}` }, container);
}

function claimMetadata(): ClaimMetadata {
  const dir = scratchDir();
  return new ClaimMetadata({
    driver: testDriver,
    dataDir: dir,
    cdiDir: dir,
    layouts: Object.values(layouts),
    marker: claimMarker,
  });
}

/** The variables of a container that are decoded say the same as all of them. */
async function listContainers(env: readonly string[]): Promise<void> {
  const listed = synchronizeRequest.encode({ containers: [{ env: [...env] }] });
  const decode = () => synchronizeRequest.decode(trim(Buffer.concat([listed, listed, listed])));
  await expectBrief('a list of containers', decode);
  const names = decode().containers?.[0]?.env ?? [];
  const metadata = claimMetadata();
  const decisions = (all: readonly string[]) => {
    const facts = { env: [...all], cpu: { cpus: '0-7', mems: '', shares: 2 } };
    const container = { env: all, createRuntimeHooks: [] };
    return [
      exclusiveCpus({ cgroupParent: '/kubepods/burstable' }, facts, new Set(['u-0'])),
      metadata.isAnyUsedBy(container),
      metadata.isUsedBy({ namespace: 'a', name: 'c', uid: 'u-0' }, container),
    ];
  };
  expectThat(isSame(decisions(names), decisions(env)), 'the decoded variables say something else than all of them');
}

/** Of the mounts of a container, those of the driver's files are decoded, or none if there are too many. */
async function listMounts(paths: readonly string[]): Promise<void> {
  const all = repeated(paths, most.environment).map((path) => ({ destination: path, source: path }));
  for (const mounts of [all, all.slice(0, 1_000)]) {
    const listed = synchronizeRequest.encode({ containers: [{ mounts }] });
    const decode = () => synchronizeRequest.decode(trim(listed)).containers?.[0]?.mounts ?? [];
    await expectBrief('the mounts of a container', decode);
    const whole = synchronizeRequest.decode(listed).containers?.[0]?.mounts ?? [];
    const own = mounts.length > 1_000 ? [] : whole.filter(({ source }) => source?.startsWith(ownFiles));
    expectThat(isSame(decode(), own), "the decoded mounts are not those of the driver's files");
  }
}

/** Lists as many links as are read, and then fewer with as many alternative names as fit into a message. */
async function listLinks(aliases: readonly string[]): Promise<void> {
  const messageOf = (text: string, index: number, nameCount: number) => {
    const name = Buffer.alloc(128, text || 'x').fill(0, 127);
    const names = Array.from({ length: nameCount }, () => ({ type: LinkAttribute.altName, value: name }));
    const alias = Buffer.concat([Buffer.from(text).subarray(0, 255), Buffer.of(0)]);
    const attributes = [
      { type: LinkAttribute.alias, value: alias },
      { type: LinkAttribute.propList, value: names },
    ];
    return Buffer.concat(encodeLink(index, attributes));
  };
  const small = Array.from({ length: mostPodLinks.listed.messages }, (_, n) =>
    messageOf(aliases[n % aliases.length]!, n + 1, 0),
  );
  const large = aliases.slice(0, 300).map((text, n) => messageOf(text, n + 1, 490));
  for (const messages of [small, Array.from({ length: 300 }, (_, n) => large[n % large.length]!)]) {
    using connection = connectKernel((seq) => tableDatagrams(seq, 16, messages));
    const identities = [{ pciAddress: '0000:3b:02.1', alias: 'vf-1', hardwareAddress: '02:02:02:02:02:01' }];
    const table = await connection.linkTable(mostPodLinks);
    table.candidates(identities);
    table.isCut?.(identities);
    table.all();
  }
}

async function findRoutes(destinations: readonly string[]): Promise<void> {
  const hop = Buffer.from([8, 0, 0, 0, 1, 0, 0, 0]);
  const multipath = { type: RouteAttribute.multipath, value: Buffer.concat(Array.from({ length: 3_900 }, () => hop)) };
  const messages = destinations.map((destination) =>
    Buffer.concat([...encodeRoute({ index: 1, destination }), ...encodeAttributes([multipath])]),
  );
  const all = Array.from({ length: maxListedRoutes - 1 }, (_, n) => messages[n % messages.length]!);
  using connection = connectKernel((seq) => tableDatagrams(seq, 24, all));
  await connection.findRoutes(
    1,
    destinations.slice(0, 64).map((destination) => ({ destination })),
  );
}

/** What tenants write, as `{ env, mounts, parameters, aliases, routes, texts }`, each at its limit. */
export const target: FuzzTarget = {
  name: 'tenant-limits',
  errors: [],
  shape: 'json',
  dictionary: [
    ownFiles,
    'DRA_CPUSET_',
    'DRA_CPUSET_u-0=',
    'NETDRA_CLAIM_',
    '0-65535,',
    '0000:3b:02.1',
    '__proto__',
    '\\u001b[',
  ],
  generated: fc
    .oneof(fc.array(vfConfigParameters, { minLength: 1, maxLength: 4 }).map((parameters) => ({ parameters })))
    .map((written) => Buffer.from(JSON.stringify(written))),
  seeds: () =>
    jsonSeeds(
      { env: ['DRA_CPUSET_x=0-65535', 'NETDRA_CLAIM_x='] },
      { env: [`DRA_CPUSET_u-0=${'0-65535,'.repeat(8_000)}`] },
      { env: ['A='] },
      { env: ['DRA_CPUSET_u-0=1', 'NETDRA_CLAIM_u_0=a/c'] },
      { env: ['D='] },
      { env: ['DRA_CPUSEX_='] },
      { mounts: ['/volumes/v', `${ownFiles}a_c/r/metadata.json`] },
      { mounts: ['/', 'x'.repeat(4_000)] },
      {
        parameters: [
          {
            apiVersion: 'netdra.dev/v1alpha1',
            kind: 'VFConfig',
            routes: Array.from({ length: 64 }, (_, n) => ({
              destination: `2001:db8:${n}::/48`,
              gateway: '2001:db8::1',
            })),
            addresses: Array.from({ length: 16 }, (_, n) => `2001:db8:a::${n + 1}/64`),
          },
        ],
      },
      { aliases: ['0000:3b:02.1', 'vf-1', 'x'.repeat(255), '\u0002'] },
      { aliases: ['vf-1'] },
      { routes: Array.from({ length: 64 }, (_, n) => `10.${n}.0.0/16`) },
      { texts: ['\u001b[2J', 'a'.repeat(1_000), '{"ips":['] },
    ),
  async run(input) {
    const written = parseJson(input) as Written | null | undefined;
    if (typeof written !== 'object' || written === null) return;
    const { env, mounts, parameters, aliases, routes, texts } = written;
    if (isTexts(env)) {
      const all = repeated(env, most.environment);
      await expectBrief('the environment of a container', () => createContainer(all));
      await listContainers(all);
    }
    if (isTexts(mounts)) await listMounts(mounts);
    if (isList(parameters) && parameters.every((each) => typeof each === 'object' && each !== null)) {
      await expectBrief('a claim', () => prepare(claimWith(parameters)));
    }
    if (isTexts(aliases)) await expectBrief('the links of a pod', () => listLinks(aliases));
    if (isTexts(routes)) await expectBrief('the routes of a pod', () => findRoutes(routes));
    if (isTexts(texts)) {
      const text = repeated(texts, most.environment).join(' ');
      await expectBrief('a text', () => printable(text));
    }
  },
};

function isList(value: unknown): value is unknown[] {
  return Array.isArray(value) && value.length > 0;
}

function isTexts(value: unknown): value is string[] {
  return isList(value) && value.every((each) => typeof each === 'string');
}
