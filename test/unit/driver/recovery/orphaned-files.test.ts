import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DeviceInfoFiles, DialectFiles } from '../../../../src/driver/dialects/index.ts';
import { OrphanedFiles } from '../../../../src/driver/recovery/index.ts';
import { CdiSpecs, ClaimMetadata, layouts } from '../../../../src/framework/metadata/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const never = new AbortController().signal;
const identity = (name: string) => ({ namespace: 'default', name, uid: `uid-${name}` });

/** Paths of the files below a directory, relative to another one. */
function filesBelow(dir: string, root: string): string[] {
  return readdirSync(dir, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1));
}

describe('OrphanedFiles', () => {
  let dir: ReturnType<typeof tempDir>;
  let metadata: ClaimMetadata;
  let orphans: OrphanedFiles;
  let dialectFiles: DialectFiles;
  let logger: RecordingLogger;
  const known = new Set<string>();
  const cdi = (file: string, kind: string) => writeFileSync(join(dir.path, 'cdi', file), JSON.stringify({ kind }));
  const claimDirs = () => readdirSync(join(dir.path, 'dra-device-metadata')).sort();
  const specs = () => readdirSync(join(dir.path, 'cdi')).sort();
  const sharedDirs = () => ({ attributesDir: join(dir.path, 'attributes'), downwardApiDir: join(dir.path, 'pods') });

  beforeEach(() => {
    dir = tempDir();
    known.clear();
    logger = new RecordingLogger();
    mkdirSync(join(dir.path, 'cdi'));
    const cdiDir = join(dir.path, 'cdi');
    metadata = new ClaimMetadata({
      driver: testDriver,
      dataDir: dir.path,
      cdiDir,
      ...sharedDirs(),
      layouts: [layouts.v1],
    });
    const specsOf = (name: string) => new CdiSpecs({ dir: cdiDir, driver: testDriver, class: name });
    const infoDirs = { dir: join(dir.path, 'devinfo'), recordDir: join(dir.path, 'device-info') };
    dialectFiles = new DialectFiles({ specs: specsOf('dialects'), deviceInfo: new DeviceInfoFiles(infoDirs) });
    orphans = new OrphanedFiles({
      store: {
        claim: (uid) => (known.has(uid) ? ({} as never) : undefined),
        claims: () => [...known].map((uid) => ({ identity: identity(uid.slice('uid-'.length)) }) as never),
      },
      metadata,
      specs: [...['metadata', 'device'].map(specsOf), dialectFiles],
      helper: {
        reclaim: async (claim, isOver, signal) => {
          if (!(await isOver(signal))) return false;
          await metadata.unprepare(claim);
          return true;
        },
      },
      logger,
    });
  });
  afterEach(() => dir[Symbol.dispose]());

  const prepare = async (name: string) => {
    const requests = { vf: { name: 'vf', devices: [{ pool: 'node-1', name: 'dev-1' }] } };
    await metadata.prepare({ claim: identity(name), requests }, new Map());
  };

  it('removes directories and specs of claims that are not prepared, when it has seen them twice', async () => {
    await prepare('gone');
    await prepare('here');
    known.add('uid-here');
    await orphans.sweep(never);
    expect(claimDirs()).toEqual(['default_gone', 'default_here']);
    await orphans.sweep(never);
    expect(claimDirs()).toEqual(['default_here']);
    expect(specs()).toEqual([`${testDriver}_metadata_uid-here_vf.json`]);
  });

  describe('a directory whose record cannot be read', () => {
    const recordPath = (name: string) => join(dir.path, 'dra-device-metadata', `default_${name}`, 'claim.json');
    const files = (name: string) => readdirSync(join(recordPath(name), '..')).sort();
    const removed = 'removed files of a claim that is no longer prepared';
    const replace = (name: string, change: (text: string) => string) =>
      writeFileSync(recordPath(name), change(readFileSync(recordPath(name), 'utf8')));

    beforeEach(async () => {
      await prepare('live');
      known.add('uid-live');
      await metadata.update(identity('live'), 'vf', [{ driver: testDriver, pool: 'node-1', name: 'dev-1' }]);
    });

    it.each<[string, () => void]>([
      ['is damaged', () => replace('live', () => '{"schema": 1, "claim"')],
      ['is empty', () => replace('live', () => '')],
      ['is of a newer version', () => replace('live', (text) => text.replace(/"schema": ?1/, '"schema": 2'))],
      ['is that of another claim', () => replace('live', (text) => text.replace('"live"', '"other"'))],
      [
        'cannot be opened',
        () => {
          rmSync(recordPath('live'));
          mkdirSync(recordPath('live'));
        },
      ],
    ])('stays with its specs when it %s, and is reported once, with what to do', async (_, damage) => {
      damage();
      const before = [files('live'), specs()];
      for (let n = 0; n < 4; n++) await orphans.sweep(never);
      expect([files('live'), specs()]).toEqual(before);
      expect(logger.lines).toMatchObject([
        { level: 'warn', fields: { err: { path: recordPath('live'), hint: expect.any(String) } } },
      ]);
    });

    it('stays when it was readable at the first look', async () => {
      known.clear();
      rmSync(recordPath('live'));
      await orphans.sweep(never);
      writeFileSync(recordPath('live'), '');
      for (let n = 0; n < 2; n++) await orphans.sweep(never);
      expect(claimDirs()).toEqual(['default_live']);
    });

    it('is reported again when it was readable meanwhile', async () => {
      const text = readFileSync(recordPath('live'), 'utf8');
      for (const content of ['', text, '']) {
        replace('live', () => content);
        await orphans.sweep(never);
      }
      expect(logger.messages('warn')).toHaveLength(2);
    });

    it('stays without a record, too, while the store has its claim', async () => {
      rmSync(recordPath('live'));
      for (let n = 0; n < 3; n++) await orphans.sweep(never);
      expect(files('live')).toEqual(['vf']);
      known.clear();
      for (let n = 0; n < 2; n++) await orphans.sweep(never);
      expect([claimDirs(), logger.messages('warn')]).toEqual([[], [removed, removed]]);
    });
  });

  it('reports specs and records of dialects that cannot be read, leaves them, and removes the others', async () => {
    const spec = (uid: string) => `${testDriver}_device_${uid}_dev-1.json`;
    mkdirSync(join(dir.path, 'cdi', spec('uid-x')));
    cdi(spec('uid-y'), `${testDriver}/device`);
    const record = join(dir.path, 'device-info', 'uid-z.json');
    mkdirSync(join(record, '..'));
    writeFileSync(record, '[{"name":');
    for (let n = 0; n < 3; n++) await orphans.sweep(never);
    expect([specs(), existsSync(record)]).toEqual([[spec('uid-x')], true]);
    const problems = logger.lines.flatMap(({ fields: { err } }) => (err === undefined ? [] : [err]));
    expect(problems).toMatchObject([{ path: join(dir.path, 'cdi', spec('uid-x')) }, { path: record }]);
  });

  it('leaves what was only just being made at the first look', async () => {
    await prepare('new');
    await orphans.sweep(never);
    known.add('uid-new');
    for (let n = 0; n < 3; n++) await orphans.sweep(never);
    expect(claimDirs()).toEqual(['default_new']);
  });

  it('removes leftover dialect specs, and their device-info files on the host', async () => {
    const infoFiles = () => readdirSync(join(dir.path, 'devinfo')).sort();
    const config = { deviceInfo: { resourceName: 'intel.com/nic' }, sriovNetwork: {} };
    for (const [index, uid] of ['uid-x', 'uid-here'].entries()) {
      const device = { name: `dev-${index}`, pciAddress: `0000:3b:02.${index}` };
      await dialectFiles.write(uid, [{ name: 'vf', config, devices: [device] }], [device]);
    }
    // A claim without variables is known from the driver's own record only.
    const third = { name: 'dev-2', pciAddress: '0000:3b:02.2' };
    const { deviceInfo } = config;
    await dialectFiles.write('uid-y', [{ name: 'vf', config: { deviceInfo }, devices: [third] }], []);
    known.add('uid-here');
    await orphans.sweep(never);
    expect(infoFiles()).toHaveLength(3);
    await orphans.sweep(never);
    expect(infoFiles()).toEqual(['intel.com-nic-0000:3b:02.1-device.json']);
    expect(specs()).toEqual([`${testDriver}_dialects_uid-here_vf.json`]);
  });

  it('touches no spec of another driver, nor one that only looks like ours', async () => {
    cdi('other.example.com_metadata_uid-x_vf.json', 'other.example.com/metadata');
    cdi(`${testDriver}_metadata_uid-x_vf.json`, 'other.example.com/metadata');
    cdi(`${testDriver}_firmware_uid-x_vf.json`, `${testDriver}/firmware`);
    writeFileSync(join(dir.path, 'cdi', `${testDriver}_metadata_uid-z_vf.json`), 'no JSON');
    const before = specs();
    for (let n = 0; n < 3; n++) await orphans.sweep(never);
    expect(specs()).toEqual(before);
  });

  it('removes files in directories that the driver shares, in layouts that it does not have', async () => {
    const uids = { gone: randomUUID(), here: randomUUID() };
    const requests = { vf: { name: 'vf', devices: [{ pool: 'node-1', name: 'dev-1' }] } };
    const cdiDir = join(dir.path, 'cdi');
    const options = { driver: testDriver, dataDir: dir.path, cdiDir, ...sharedDirs() };
    const earlier = new ClaimMetadata({ ...options, layouts: [layouts['attributes-json'], layouts['downward-api']] });
    for (const [name, uid] of Object.entries(uids)) {
      const claim = { ...identity(name), uid };
      await earlier.prepare({ claim, podUid: `pod-${name}`, requests }, new Map());
      await earlier.update(claim, 'vf', [{ driver: testDriver, pool: 'node-1', name: 'dev-1' }]);
    }
    known.add(uids.here);
    // As when an instance without these directories has unprepared the claim.
    rmSync(join(dir.path, 'dra-device-metadata/default_gone'), { recursive: true });
    const others = {
      'attributes/readme.json': '{}',
      [`attributes/${testDriver}-x-${uids.gone}-vf.json`]: '{}',
      'pods/pod-gone/other.vf.json': JSON.stringify({
        metadata: { uid: randomUUID() },
        requests: [{ devices: [{ driver: 'gpu.example.com' }] }],
      }),
      'pods/pod-gone/blank.vf.json': '  ',
      'pods/pod-gone/null.vf.json': 'null',
      'pods/readme': 'of another program',
    };
    for (const [path, text] of Object.entries(others)) writeFileSync(join(dir.path, path), text);
    const files = () => Object.values(sharedDirs()).flatMap((path) => filesBelow(path, dir.path));
    const kept = [
      ...Object.keys(others),
      `attributes/${testDriver}-${uids.here}-vf.json`,
      'pods/pod-here/here.vf.json',
    ];
    const stale = [`attributes/${testDriver}-${uids.gone}-vf.json`, 'pods/pod-gone/gone.vf.json'];
    await orphans.sweep(never);
    expect(files().sort()).toEqual([...kept, ...stale].sort());
    for (let n = 0; n < 3; n++) await orphans.sweep(never);
    expect(files().sort()).toEqual(kept.sort());
    // A pod's directory is removed with its last file.
    const last = { ...identity('last'), uid: randomUUID() };
    await earlier.prepare({ claim: last, podUid: 'pod-last', requests }, new Map());
    await earlier.update(last, 'vf', [{ driver: testDriver, pool: 'node-1', name: 'dev-1' }]);
    rmSync(join(dir.path, 'dra-device-metadata/default_last'), { recursive: true });
    for (let n = 0; n < 2; n++) await orphans.sweep(never);
    expect(existsSync(join(dir.path, 'pods/pod-last'))).toBe(false);
  });

  it('goes on without a directory that it shares and cannot read', async () => {
    writeFileSync(sharedDirs().attributesDir, 'no directory');
    await prepare('gone');
    for (let n = 0; n < 2; n++) await orphans.sweep(never);
    expect(claimDirs()).toEqual([]);
    expect(logger.messages('warn')).toContain('files of a claim cannot be read or removed, and stay');
  });

  it('removes what a crash has left of a directory, unless its claim came meanwhile', async () => {
    mkdirSync(join(dir.path, 'dra-device-metadata', 'default_half', 'vf'), { recursive: true });
    mkdirSync(join(dir.path, 'dra-device-metadata', 'default_later'));
    await orphans.sweep(never);
    await prepare('later');
    known.add('uid-later');
    await orphans.sweep(never);
    expect(claimDirs()).toEqual(['default_later']);
    expect(existsSync(join(dir.path, 'dra-device-metadata/default_later/claim.json'))).toBe(true);
  });
});
