import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type DeviceAttributes,
  type LayoutName,
  layoutNames,
  layouts,
} from '../../../../src/framework/metadata/index.ts';
import { Bench } from './bench.ts';
import { claim, documentOf, driver, golden, kernel, place, podUid, recordOf, samples } from './samples.ts';

const device = { driver, pool: 'node-1', name: '0000-3b-02-1' };
const record = recordOf(kernel);
const attributes = kernel.content.published[0]?.attributes ?? {};
const devices = documentOf(kernel).devices;
const gate = { program: '/opt/netdra-gate', timeoutSeconds: 100 };
const published = (attributesOf: DeviceAttributes) => ({ attributesOf: () => attributesOf });

let bench: Bench;
beforeEach(() => {
  bench = new Bench();
});
afterEach(() => bench[Symbol.dispose]());

/** Where a layout has its file on this node. */
function path(layout: LayoutName, sample = kernel): string {
  const { base, parts } = layouts[layout].hostFile(bench, place(sample));
  return join(base, ...parts);
}

/** A driver that has prepared the claim and described its devices. */
async function written(options: Parameters<Bench['start']>[0] = {}) {
  const metadata = bench.start(options);
  await metadata.prepare(record, new Map());
  await metadata.update(claim, 'vf', devices);
  return metadata;
}

const combinations = Array.from({ length: 2 ** layoutNames.length }, (_, bits) =>
  layoutNames.filter((_name, index) => bits & (1 << index)),
).filter((names) => names.length > 0);

it.each(combinations.map((names) => [names.join(' + '), names] as const))(
  'a claim has exactly the files of its layouts: %s',
  async (_title, names) => {
    const metadata = bench.start({ layouts: names, ...published(attributes) });
    await metadata.prepare(record, new Map());
    expect([...bench.mounts(claim.uid)].map(([, hostPath]) => hostPath)).toEqual(names.map((name) => path(name)));
    // At prepare: only what the ResourceSlice says.
    for (const name of layoutNames)
      expect(existsSync(path(name))).toBe(name === 'attributes-json' && names.includes(name));

    expect(await metadata.update(claim, 'vf', devices)).toMatchObject({ generation: 1 });
    for (const name of names) {
      const text = layouts[name].encode(kernel.content);
      expect(readFileSync(path(name), 'utf8')).toBe(text);
      expect(text).toBe(golden(`${name}/kernel.golden`, text ?? ''));
      expect(statSync(path(name)).mode & 0o777).toBe(0o644);
    }
    expect(await metadata.update(claim, 'vf', [device])).toMatchObject({ generation: 2 });
    expect(await metadata.read(claim, 'vf')).toMatchObject({ generation: 2, devices: [device] });

    await metadata.unprepare(claim);
    expect(bench.files()).toEqual([]);
    expect(existsSync(join(bench.downwardApiDir, podUid))).toBe(false);
  },
);

it('ClaimMetadata rejects an empty list of layouts', () => {
  expect(() => bench.start({ layouts: [] })).toThrow('the list of layouts for device metadata is empty');
});

it.each(Object.keys(samples))('the CDI spec matches the golden file for %s', async (name) => {
  const sample = samples[name] as typeof kernel;
  await bench.start().prepare(recordOf(sample), new Map());
  const [spec] = bench.files(bench.cdiDir);
  const text = bench.read(`cdi/${spec}`).replaceAll(bench.path, '');
  expect(text).toBe(golden(`cdi/${name}.golden`, text));
  expect(spec).toBe(`${driver}_metadata_${claim.uid}_${place(sample).request}.json`);
});

describe('the layout attributes-json', () => {
  it('is not changed by updates, withdrawals or a restart', async () => {
    const metadata = bench.start(published({ model: { string: 'm' }, ready: { bool: true } }));
    await metadata.prepare(record, new Map());
    const before = readFileSync(path('attributes-json'), 'utf8');
    const { ino, mtimeNs } = statSync(path('attributes-json'), { bigint: true });
    expect(JSON.parse(before).claims[0].requests[0].attributes).toEqual({ model: 'm', ready: 'true' });
    await metadata.update(claim, 'vf', [{ ...device, attributes: { model: { string: 'other' } } }]);
    await metadata.withdraw(claim);
    // The slice is not known yet when the next process prepares the claim again.
    await bench.start({ attributesOf: () => undefined }).prepare(record, new Map());
    expect(readFileSync(path('attributes-json'), 'utf8')).toBe(before);
    expect(statSync(path('attributes-json'), { bigint: true })).toMatchObject({ ino, mtimeNs });
  });

  it('prefers values that the driver gives at prepare over values in the slice', async () => {
    const metadata = bench.start(published({ model: { string: 'slice' }, index: { int: 1 } }));
    const immediate = [{ ...device, attributes: { model: { string: 'driver' }, more: { bools: [true] } } }];
    await metadata.prepare(record, new Map([['vf', immediate]]));
    expect(JSON.parse(readFileSync(path('attributes-json'), 'utf8')).claims[0].requests).toEqual([
      { requestName: 'vf', attributes: { index: '1', model: 'driver', more: 'true' } },
    ]);
  });
});

describe('the layout downward-api', () => {
  it('has a file for each pod of the claim, and mounts the file of the first pod', async () => {
    const metadata = await written({ layouts: ['downward-api'] });
    const pods = () => bench.files(bench.downwardApiDir);
    const filesOf = (...uids: string[]) => uids.map((uid) => `${uid}/fast-net.vf.json`);
    await metadata.prepare({ ...record, otherPodUids: ['pod-b', 'pod-c'] }, new Map());
    expect(pods()).toEqual(filesOf(podUid, 'pod-b', 'pod-c'));
    await metadata.update(claim, 'vf', [device]);
    expect(new Set(pods().map((name) => readFileSync(join(bench.downwardApiDir, name), 'utf8'))).size).toBe(1);
    // One pod has ended, and another one has the claim now; containers that it starts again still mount the first file.
    await metadata.prepare({ ...record, podUid: 'pod-c', otherPodUids: ['pod-d'] }, new Map());
    expect(pods()).toEqual(filesOf(podUid, 'pod-c', 'pod-d'));
    expect(existsSync(join(bench.downwardApiDir, 'pod-b'))).toBe(false);
    expect([...bench.mounts(claim.uid).values()]).toEqual([path('downward-api')]);
    await metadata.withdraw(claim);
    expect(pods().filter((name) => name.endsWith('.json'))).toEqual([]);
    await metadata.unprepare(claim);
    expect(existsSync(join(bench.downwardApiDir, 'pod-d'))).toBe(false);
  });

  it('contains the time of readiness, not the time of the last change', async () => {
    let now = '2026-03-01T12:00:00.789Z';
    const metadata = bench.start({ now: () => new Date(now) });
    const since = () =>
      JSON.parse(readFileSync(path('downward-api'), 'utf8')).requests[0].devices[0].driverProvidedData.conditions[0];
    await metadata.prepare(record, new Map());
    await metadata.update(claim, 'vf', devices);
    now = '2026-03-01T12:00:05Z';
    await metadata.update(claim, 'vf', [device]);
    expect(since()).toEqual({ type: 'Ready', status: 'True', lastTransitionTime: '2026-03-01T12:00:00Z' });
    await metadata.withdraw(claim);
    await metadata.update(claim, 'vf', [device]);
    expect(since()).toMatchObject({ lastTransitionTime: '2026-03-01T12:00:05Z' });
  });

  it('counts generations internally, even across restarts', async () => {
    const start = () => bench.start({ layouts: ['downward-api'] });
    await start().prepare(record, new Map());
    expect(await start().update(claim, 'vf', devices)).toMatchObject({ generation: 1 });
    expect(await start().update(claim, 'vf', devices)).toMatchObject({ generation: 1 });
    await start().prepare(record, new Map());
    expect(await start().update(claim, 'vf', [device])).toMatchObject({ generation: 2 });
  });

  it('rejects a claim without pods before it writes anything', async () => {
    const { podUid: _, ...rest } = record;
    await expect(bench.start().prepare(rest, new Map())).rejects.toThrow(
      'claim default/fast-net is not reserved for any pod',
    );
    expect(bench.files()).toEqual([]);
  });
});

describe('a driver started with other layouts', () => {
  it('keeps the files of earlier layouts current until unprepare, and adds files in its own layouts', async () => {
    const had = ['v1', 'attributes-json', 'downward-api'] as const;
    const before = bench.start({ layouts: had, ...published(attributes) });
    await before.prepare(record, new Map());
    await before.update(claim, 'vf', [device]);
    const after = bench.start({ layouts: ['kep'] });
    expect(await after.update(claim, 'vf', devices)).toMatchObject({ generation: 2 });
    expect(readFileSync(path('v1'), 'utf8')).toContain('"generation": 2');
    expect(readFileSync(path('downward-api'), 'utf8')).toContain('"hwAddress"');
    // A container of the pod that starts after the next prepare finds the files that it had before, and the new one.
    await after.prepare(record, new Map());
    expect([...bench.mounts(claim.uid).values()].sort()).toEqual(
      [...had, 'kep' as const].map((name) => path(name)).sort(),
    );
    expect(readFileSync(path('kep'), 'utf8')).toContain('"generation": 2');
    expect(await after.update(claim, 'vf', [device])).toMatchObject({ generation: 3 });
    expect(readFileSync(path('v1'), 'utf8')).toContain('"generation": 3');
    await after.withdraw(claim);
    for (const name of layoutNames) expect(existsSync(path(name)), name).toBe(name === 'attributes-json');
    await after.update(claim, 'vf', [device]);
    for (const name of layoutNames) expect(existsSync(path(name)), name).toBe(true);
    await after.unprepare(claim);
    expect(bench.files()).toEqual([]);
  });

  it('keeps all layouts of a claim if an instance with fewer layouts prepares it again', async () => {
    const all = bench.start();
    const fewer = bench.start({ layouts: ['v1'] });
    await all.prepare(record, new Map());
    await all.update(claim, 'vf', devices);
    const mounts = bench.mounts(claim.uid);
    expect(mounts.size).toBe(layoutNames.length);
    for (const each of [fewer, all, fewer]) {
      await each.prepare(record, new Map());
      expect(bench.mounts(claim.uid)).toEqual(mounts);
      expect(await each.countFiles()).toBe(1);
    }
    await fewer.unprepare(claim);
    expect(bench.files()).toEqual([]);
  });

  it('gives new claims only its own layouts', async () => {
    await bench.start().prepare(record, new Map());
    const next = { ...claim, name: 'slow-net', uid: 'next-uid' };
    const metadata = bench.start({ layouts: ['v1'] });
    await metadata.prepare({ ...record, claim: next }, new Map());
    expect([...bench.mounts('next-uid').keys()]).toEqual([expect.stringContaining('/kubernetes.io/')]);
    // Another claim of the same name gets nothing of the first one's layouts.
    await metadata.prepare({ ...record, claim: { ...claim, uid: 'other-uid' } }, new Map());
    expect(bench.mounts('other-uid').size).toBe(1);
    expect([bench.files(bench.attributesDir), bench.files(bench.downwardApiDir)]).toEqual([[], []]);
  });
});

it.each([
  ['no record', () => rmSync(join(bench.dataDir, 'dra-device-metadata'), { recursive: true })],
  [
    'a damaged record',
    () => writeFileSync(join(bench.dataDir, 'dra-device-metadata/default_fast-net/claim.json'), '{'),
  ],
])(
  'unprepare with an unreadable record finds the files of the claim by name, and removes no others: %s',
  async (_what, damage) => {
    const metadata = await written();
    const others = [
      `attributes/${driver}-other-uid-vf.json`,
      `attributes/other.${driver}-${claim.uid}-vf.json`,
      `pods/${podUid}/fast-net.other.json`,
      `pods/${podUid}/fast-net.theirs.json`,
      `pods/${podUid}/fast-network.vf.json`,
      'pods/file',
    ];
    // Of a claim of the name in another namespace, and of another driver of the claim.
    const texts = [
      { uid: 'other-uid', driver },
      { uid: claim.uid, driver: `other.${driver}` },
    ].map((each) => JSON.stringify(each));
    for (const [index, other] of others.entries()) writeFileSync(join(bench.path, other), texts[index % 2] ?? '');
    damage();
    await metadata.unprepare(claim);
    expect(bench.files()).toEqual(others.toSorted());
  },
);

describe('a claim that is prepared again', () => {
  it('restores missing files with the content of the last update', async () => {
    const metadata = await written();
    for (const dir of [bench.attributesDir, bench.cdiDir]) rmSync(dir, { recursive: true });
    rmSync(path('v1'));
    await metadata.prepare(record, new Map());
    for (const name of layoutNames) expect(existsSync(path(name))).toBe(true);
    expect(readFileSync(path('v1'), 'utf8')).toBe(layouts.v1.encode(kernel.content));
    expect(bench.mounts(claim.uid).size).toBe(layoutNames.length);
  });

  it('withdraws metadata of an earlier boot, and continues its generations', async () => {
    await written({ bootId: 'one' });
    const second = bench.start({ bootId: 'two' });
    await second.prepare(record, new Map());
    for (const name of layoutNames) expect(existsSync(path(name))).toBe(name === 'attributes-json');
    expect(await second.update(claim, 'vf', devices)).toMatchObject({ generation: 2 });
    // The second prepare of this boot hides nothing.
    await second.prepare(record, new Map());
    expect(existsSync(path('v1'))).toBe(true);
  });

  it('reads the ID of the current boot if the option bootId is not set', async () => {
    await written();
    const bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    await bench.start({ bootId }).prepare(record, new Map());
    expect(existsSync(path('v1'))).toBe(true);
    await bench.start({ bootId: 'next' }).prepare(record, new Map());
    expect(existsSync(path('v1'))).toBe(false);
  });

  it.each([
    ['without a gate', {}, new Map()],
    ['known at prepare, with a gate', { gate }, new Map([['vf', [device]]])],
  ])('hides its content when it is prepared for a single new pod: %s', async (_title, options, contents) => {
    const metadata = bench.start(options);
    await metadata.prepare(record, contents);
    await metadata.update(claim, 'vf', devices);
    for (const pods of [{ otherPodUids: ['pod-b'] }, { podUid: 'pod-b' }, { podUid: 'pod-c', otherPodUids: ['pod-d'] }])
      await metadata.prepare({ ...record, ...pods }, contents);
    expect(metadata.read(claim, 'vf')?.devices).toEqual(devices);
    await metadata.prepare({ ...record, podUid: 'pod-e' }, contents);
    expect(metadata.read(claim, 'vf')?.devices).toEqual(contents.get('vf'));
    expect(await metadata.update(claim, 'vf', devices)).toMatchObject({ generation: contents.size === 0 ? 2 : 4 });
  });

  it('keeps the content of a later update, and merges new content from prepare into it', async () => {
    const metadata = bench.start();
    const identity = new Map([['vf', [device]]]);
    await metadata.prepare(record, identity);
    expect(await metadata.update(claim, 'vf', devices)).toMatchObject({ generation: 2 });
    await metadata.prepare(record, identity);
    expect(await metadata.read(claim, 'vf')).toMatchObject({ generation: 2, devices });
    const more = { ...device, attributes: { model: { string: 'm' } } };
    await metadata.prepare(record, new Map([['vf', [more]]]));
    expect(await metadata.read(claim, 'vf')).toMatchObject({
      generation: 3,
      devices: [
        { attributes: { ...devices[0]?.attributes, ...more.attributes }, networkData: devices[0]?.networkData },
      ],
    });
  });

  it('keeps the requests of an earlier prepare, whose CDI IDs the kubelet may still use', async () => {
    const metadata = bench.start();
    const both = { ...record.requests, gpu: { name: 'gpu', devices: [{ pool: 'p', name: 'g' }] } };
    await metadata.prepare({ ...record, requests: both }, new Map());
    rmSync(bench.cdiDir, { recursive: true });
    expect([...(await metadata.prepare(record, new Map())).keys()]).toEqual(['vf']);
    expect(bench.files(bench.cdiDir)).toHaveLength(2);
  });
});

describe('immediate, deferred and mixed metadata', () => {
  const requests = Object.fromEntries(
    ['now', 'later', 'sub'].map((base) => [
      base,
      { name: base === 'sub' ? 'sub/large' : base, devices: [{ pool: 'node-1', name: device.name }] },
    ]),
  );

  it('is written to a file per request as soon as it is known', async () => {
    const metadata = bench.start({ layouts: ['v1'] });
    const ids = await metadata.prepare({ ...record, requests }, new Map([['now', [device]]]));
    expect([...ids]).toEqual(['now', 'later', 'sub'].map((base) => [base, `${driver}/metadata=${claim.uid}_${base}`]));
    const files = () => bench.files(join(bench.dataDir, 'dra-device-metadata/default_fast-net'));
    expect(files()).toEqual(['claim.json', 'now/metadata.json']);
    await metadata.update(claim, 'sub/large', [device]);
    expect(files()).toEqual(['claim.json', 'now/metadata.json', 'sub/metadata.json']);
    expect(await metadata.read(claim, 'sub')).toMatchObject({ request: 'sub/large', generation: 1 });
    await metadata.update(claim, 'later', [device]);
    expect(await metadata.read(claim, 'now')).toMatchObject({ generation: 1 });
  });

  it('rejects an update for a subrequest that was not allocated', async () => {
    const metadata = bench.start();
    await metadata.prepare({ ...record, requests }, new Map());
    await expect(metadata.update(claim, 'sub/small', [device])).rejects.toThrow(
      'cannot update metadata of claim default/fast-net: request sub/small is not prepared, sub/large is',
    );
  });

  it('writes nothing at all if a device of one request is invalid', async () => {
    const bad = { ...device, attributes: { mtu: { int: 1.5 } } };
    const contents = new Map([
      ['now', [device]],
      ['later', [bad]],
    ]);
    await expect(bench.start().prepare({ ...record, requests }, contents)).rejects.toThrow(
      'claim default/fast-net, request later, device node-1/0000-3b-02-1: attribute "mtu": int needs a whole number',
    );
    expect(bench.files()).toEqual([]);
  });

  it('keeps the file if an update is invalid', async () => {
    const metadata = await written();
    const before = readFileSync(path('v1'), 'utf8');
    await expect(metadata.update(claim, 'vf', [{ ...device, networkData: { ips: ['10.0.0.1'] } }])).rejects.toThrow(
      'networkData.ips: "10.0.0.1" is not a canonical address',
    );
    expect(readFileSync(path('v1'), 'utf8')).toBe(before);
  });

  it('accepts a request that is named like a member of every JavaScript object', async () => {
    const metadata = bench.start();
    await expect(metadata.update(claim, 'constructor', [])).rejects.toThrow('the claim is not prepared');
    await metadata.prepare(record, new Map());
    await expect(metadata.update(claim, 'constructor', [])).rejects.toThrow('request constructor is not prepared');
    const named = { constructor: { name: 'constructor', devices: [{ pool: 'node-1', name: device.name }] } };
    await metadata.prepare({ ...record, requests: named }, new Map());
    expect(await metadata.update(claim, 'constructor', [device])).toMatchObject({ generation: 1 });
  });
});

describe("ClaimMetadata, looking for a container's claims", () => {
  it('finds the requests whose files a container mounts, or all requests of its claim if it mounts none', async () => {
    const metadata = bench.start();
    const devices = [{ pool: 'node-1', name: device.name }];
    await metadata.prepare(
      { ...record, requests: { a: { name: 'a', devices }, b: { name: 'b', devices } } },
      new Map(),
    );
    const [{ mounts = [] } = {}] = bench.edits(claim.uid);
    const mounted = mounts.map(({ hostPath }) => ({ source: hostPath }));
    const used = (own: typeof mounted) =>
      ['a', 'b'].map((name) => metadata.isRequestUsedBy(claim, name, { mounts: own }));
    expect([used(mounted), used([])]).toEqual([
      [true, false],
      [true, true],
    ]);
  });

  it.each([['hook'], ['file']])('finds the claims of a container whatever it mounts: gate %s', async (mode) => {
    const others = [
      { ...claim, name: 'fast-net2', uid: 'other' },
      { ...claim, namespace: 'other', uid: 'other-2' },
    ];
    const none = {
      env: ['PATH=/bin', `CLAIM=${claim.uid}`],
      createRuntimeHooks: [{ args: ['--claim-dir', '/data/x'] }],
    };
    const cases: { enabled?: boolean; layouts?: ['attributes-json'] }[] = [
      { enabled: false },
      { layouts: ['attributes-json'] },
      {},
    ];
    for (const more of cases) {
      const metadata = bench.start({ marker: 'CLAIM_', ...(mode === 'hook' ? { gate } : {}), ...more });
      const ids = await metadata.prepare(record, new Map());
      if (more.enabled === false && mode === 'file') {
        // Nothing waits, so nothing of metadata is there while it is off.
        expect([ids, bench.edits(claim.uid)]).toEqual([new Map(), []]);
        expect(metadata.isShownByContainers(claim)).toBe(false);
        continue;
      }
      expect(metadata.isShownByContainers(claim)).toBe(true);
      const off = bench.start({ marker: 'CLAIM_', enabled: false });
      expect(off.isShownByContainers(claim)).toBe(more.enabled !== false);
      expect(off.isShownByContainers(others[0]!)).toBe(false);
      expect([...ids.keys()]).toEqual(['vf']);
      const [{ env = [], hooks = [] } = {}] = bench.edits(claim.uid);
      expect([env, hooks.length]).toEqual(
        mode === 'hook' ? [[], 1] : [[`CLAIM_${claim.uid.replaceAll('-', '_')}=default/fast-net`], 0],
      );
      const container = { env: ['PATH=/bin', ...env], createRuntimeHooks: hooks };
      expect([metadata.isUsedBy(claim, container), metadata.isAnyUsedBy(container)]).toEqual([true, true]);
      expect(metadata.hasGateOf(claim, container)).toBe(mode === 'hook');
      for (const other of others) expect(metadata.isUsedBy(other, container)).toBe(false);
      const [{ mounts = [] } = {}] = bench.edits(claim.uid);
      const mounted = { mounts: mounts.map(({ hostPath }) => ({ source: hostPath })) };
      expect(metadata.isRequestUsedBy(claim, 'vf', mounted)).toBe(true);
      // Without files, a container of the claim may have all of its requests: it may be older than its driver's files.
      expect(metadata.isRequestUsedBy(claim, 'vf/large', { mounts: [] })).toBe(true);
      expect([metadata.isUsedBy(claim, none), metadata.isAnyUsedBy(none)]).toEqual([false, false]);
      await metadata.unprepare(claim);
    }
  });

  it('treats a container with too many mounts or variables as a user of every claim, at low cost', () => {
    const metadata = bench.start({ marker: 'CLAIM_' });
    let reads = 0;
    const counted = (env: string[]) => ({
      env: new Proxy(env, {
        get(target, key) {
          reads++;
          return Reflect.get(target, key);
        },
      }),
      createRuntimeHooks: [],
    });
    const flood = counted(Array.from({ length: 80_000 }, (_, n) => `CLAIM_x${n}=`));
    const claims = Array.from({ length: 128 }, (_, n) => ({ ...claim, uid: `uid-${n}` }));
    expect(claims.filter((each) => metadata.isUsedBy(each, flood))).toHaveLength(128);
    expect(reads).toBeLessThan(10_000);
    const marked = counted([...Array(80_000).fill('A=1'), 'CLAIM_uid_7=a/b']);
    expect(claims.filter((each) => metadata.isUsedBy(each, marked)).map(({ uid }) => uid)).toEqual(['uid-7']);
    // Each twice, since the length is read with it, and not once more for another claim.
    expect(reads).toBeLessThan(200_000);
  });
});

describe('disabled metadata', () => {
  it('writes nothing for a new claim, and ignores its updates', async () => {
    const metadata = bench.start({ enabled: false });
    expect(await metadata.prepare(record, new Map([['vf', [device]]]))).toEqual(new Map());
    expect(await metadata.update(claim, 'vf', devices)).toMatchObject({ generation: 0 });
    expect(await metadata.countFiles()).toBe(0);
    await metadata.withdraw(claim);
    await metadata.unprepare(claim);
    expect(bench.files()).toEqual([]);
  });

  it('keeps files, mounts and updates of a claim prepared before, until it is unprepared', async () => {
    const on = bench.start({ layouts: ['v1', 'downward-api'] });
    const ids = await on.prepare(record, new Map());
    expect(await on.countFiles()).toBe(0);
    await on.update(claim, 'vf', [device]);
    const off = bench.start({ enabled: false });
    expect(await off.update(claim, 'vf', devices)).toMatchObject({ generation: 2 });
    expect([await on.countFiles(), await off.countFiles()]).toEqual([1, 1]);
    expect(readFileSync(path('v1'), 'utf8')).toContain('"generation": 2');
    // After a boot the CDI specs are gone, and the kubelet still hands out their ids.
    rmSync(bench.cdiDir, { recursive: true });
    mkdirSync(bench.cdiDir);
    expect(await off.prepare(record, new Map())).toEqual(ids);
    expect([...bench.mounts(claim.uid).values()]).toEqual([path('v1'), path('downward-api')]);
    await off.withdraw(claim);
    expect(existsSync(path('v1'))).toBe(false);
    expect(await off.countFiles()).toBe(0);
    expect(await off.update(claim, 'vf', devices)).toMatchObject({ generation: 3 });
    await off.unprepare(claim);
    expect(bench.files()).toEqual([]);
    expect(await off.prepare(record, new Map())).toEqual(new Map());
  });
});
