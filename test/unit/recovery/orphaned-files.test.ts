import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DeviceInfoFiles, DialectFiles } from '../../../src/dialects/index.ts';
import { CdiSpecs, ClaimMetadata, layouts } from '../../../src/metadata/index.ts';
import { OrphanedFiles } from '../../../src/recovery/index.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { testDriver } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const never = new AbortController().signal;
const identity = (name: string) => ({ namespace: 'default', name, uid: `uid-${name}` });

describe('OrphanedFiles', () => {
  let dir: ReturnType<typeof tempDir>;
  let metadata: ClaimMetadata;
  let orphans: OrphanedFiles;
  let dialectFiles: DialectFiles;
  const known = new Set<string>();
  const cdi = (file: string, kind: string) => writeFileSync(join(dir.path, 'cdi', file), JSON.stringify({ kind }));
  const claimDirs = () => readdirSync(join(dir.path, 'dra-device-metadata')).sort();
  const specs = () => readdirSync(join(dir.path, 'cdi')).sort();

  beforeEach(() => {
    dir = tempDir();
    known.clear();
    mkdirSync(join(dir.path, 'cdi'));
    const cdiDir = join(dir.path, 'cdi');
    metadata = new ClaimMetadata({ driver: testDriver, dataDir: dir.path, cdiDir, layouts: [layouts.v1] });
    const specsOf = (name: string) => new CdiSpecs({ dir: cdiDir, driver: testDriver, class: name });
    const infoDirs = { dir: join(dir.path, 'devinfo'), recordDir: join(dir.path, 'device-info') };
    dialectFiles = new DialectFiles({ specs: specsOf('dialects'), deviceInfo: new DeviceInfoFiles(infoDirs) });
    orphans = new OrphanedFiles({
      store: { claim: (uid) => (known.has(uid) ? ({} as never) : undefined) },
      metadata,
      specs: [...['metadata', 'device'].map(specsOf), dialectFiles],
      helper: {
        reclaim: async (claim, isOver, signal) => {
          if (!(await isOver(signal))) return false;
          await metadata.unprepare(claim);
          return true;
        },
      },
      logger: new RecordingLogger(),
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

  it('leaves what was only just being made at the first look', async () => {
    await prepare('new');
    await orphans.sweep(never);
    known.add('uid-new');
    for (let n = 0; n < 3; n++) await orphans.sweep(never);
    expect(claimDirs()).toEqual(['default_new']);
  });

  it('removes specs that no directory tells of, of both classes', async () => {
    cdi(`${testDriver}_device_uid-x_dev-1.json`, `${testDriver}/device`);
    cdi(`${testDriver}_metadata_uid-y_vf.json`, `${testDriver}/metadata`);
    await orphans.sweep(never);
    await orphans.sweep(never);
    expect(specs()).toEqual([]);
  });

  it('removes what a killed process has left of a spec, unless its claim is known', async () => {
    for (const uid of ['uid-x', 'uid-here']) {
      writeFileSync(join(dir.path, 'cdi', `.${testDriver}_metadata_${uid}_vf.json.tmp`), '{ "cdiVer');
    }
    known.add('uid-here');
    await orphans.sweep(never);
    await orphans.sweep(never);
    expect(specs()).toEqual([`.${testDriver}_metadata_uid-here_vf.json.tmp`]);
  });

  it('removes what is left of older dialects, and what the host was told of them', async () => {
    const infoFiles = () => readdirSync(join(dir.path, 'devinfo')).sort();
    const config = { deviceInfo: { resourceName: 'intel.com/nic' }, sriovNetwork: {} };
    for (const [index, uid] of ['uid-x', 'uid-here'].entries()) {
      const device = { name: `dev-${index}`, pciAddress: `0000:3b:02.${index}` };
      await dialectFiles.write(uid, [{ name: 'vf', config, devices: [device] }], [device]);
    }
    // Only the driver's own note tells of a claim without variables.
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
