import { randomUUID } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type ClaimMetadata,
  type ClaimRecord,
  type DeviceMetadata,
  inspectClaim,
  type MetadataVersion,
  RecordFiles,
  readMetadataFile,
} from '../../../../../src/framework/metadata/index.ts';
import { Bench } from '../bench.ts';
import { claim, driver } from '../samples.ts';

const record: ClaimRecord = {
  claim,
  requests: { vf: { name: 'vf', devices: [{ pool: 'node-1', name: 'dev-1' }] } },
};

function deviceWith(ip: string): DeviceMetadata {
  return { driver, pool: 'node-1', name: 'dev-1', networkData: { interfaceName: 'net1', ips: [ip] } };
}

describe('ClaimMetadata', () => {
  let bench: Bench;
  let metadata: ClaimMetadata;
  let file: string;
  const open = (versions?: MetadataVersion[]) => bench.start({ layouts: ['v1', 'kep'], ...(versions && { versions }) });

  beforeEach(() => {
    bench = new Bench();
    metadata = open();
    file = join(bench.dataDir, 'dra-device-metadata/default_fast-net/vf/metadata.json');
  });
  afterEach(() => bench[Symbol.dispose]());

  it('writes the configured versions, but keeps the versions of a prepared claim', async () => {
    const textWith = async (versions: MetadataVersion[], uid: string) => {
      await open(versions).prepare({ ...record, claim: { ...claim, uid } }, new Map([['vf', [deviceWith('::1/128')]]]));
      return readFileSync(file, 'utf8').replaceAll(uid, 'uid');
    };
    const both = await textWith(['v1beta1', 'v1alpha1'], 'a-uid');
    const [newer, older] = [await textWith(['v1beta1'], 'b-uid'), await textWith(['v1alpha1'], 'c-uid')];
    expect(newer + older).toBe(both);
    expect(older).toContain('metadata.resource.k8s.io/v1alpha1');
    expect((await inspectClaim(driver, bench, claim))?.files).toContainEqual(
      expect.objectContaining({ layout: 'v1', state: 'current' }),
    );
    expect((await textWith(['v1beta1'], 'c-uid')).trimEnd()).toBe(both.trimEnd());
    expect(() => open([])).toThrow('the list of versions of device metadata is empty');
  });

  it("commits the records of all successful claims of a call together with the driver's own changes", async () => {
    const steps: string[] = [];
    class NotedRecords extends RecordFiles {
      together(task: () => void): void {
        steps.push('begin');
        task();
        steps.push('end');
      }
      override write(name: string, text: string): void {
        steps.push(`write ${name}`);
        super.write(name, text);
      }
    }
    metadata = bench.start({ layouts: ['v1'], records: new NotedRecords(bench.dataDir) });
    const claims = ['fast-net', 'slow-net', 'bad/name'].map((name) => ({
      record: { ...record, claim: { ...claim, name, uid: `${name[0]}-uid` } },
      contents: new Map(),
      commit: () => {
        steps.push(`prepared ${name}`);
        if (name === 'slow-net') throw new Error('its VF is taken');
      },
    }));
    const results = await metadata.prepareAll(claims);
    expect(steps).toEqual([
      'begin',
      'write default_fast-net',
      'prepared fast-net',
      'write default_slow-net',
      'prepared slow-net',
      'end',
    ]);
    expect(Object.fromEntries(results)).toEqual({
      'f-uid': new Map([['vf', `${driver}/metadata=f-uid_vf`]]),
      's-uid': new Error('its VF is taken'),
      'b-uid': expect.objectContaining({ code: 'metadata-name-invalid' }),
    });
  });

  it('rewrites a file in place, so that bind mounts show the new content, whether shorter or longer', async () => {
    await metadata.prepare(record, new Map());
    await metadata.update(claim, 'vf', [deviceWith('192.0.2.1/24')]);
    const { ino, size } = statSync(file);
    const longer = {
      ...deviceWith('192.0.2.1/24'),
      attributes: { notes: { strings: Array(10).fill('x'.repeat(50)) } },
    };
    await metadata.update(claim, 'vf', [longer]);
    expect(statSync(file).size).toBeGreaterThan(size);
    await metadata.update(claim, 'vf', [deviceWith('192.0.2.9/24')]);
    expect(statSync(file).ino).toBe(ino);
    expect(await readMetadataFile(file)).toMatchObject({ generation: 3, devices: [deviceWith('192.0.2.9/24')] });
  });

  it('withdraws only the requests that the caller names', async () => {
    const requests = { ...record.requests, other: { name: 'other', devices: [{ pool: 'node-1', name: 'dev-2' }] } };
    await metadata.prepare({ ...record, requests }, new Map([['other', [{ driver, pool: 'node-1', name: 'dev-2' }]]]));
    await metadata.update(claim, 'vf', [deviceWith('192.0.2.1/24')]);
    await metadata.withdraw(claim, ['vf']);
    expect(existsSync(file)).toBe(false);
    expect(await metadata.read(claim, 'other')).toMatchObject({ generation: 1, devices: [{ name: 'dev-2' }] });
    expect(existsSync(join(file, '../../other/metadata.json'))).toBe(true);
  });

  it.each<[string, (other: string) => unknown]>([
    ['a power loss left empty', (other) => [file, other].map((each) => truncateSync(each))],
    [
      'another process damaged or removed',
      (other) => {
        writeFileSync(file, '{"kind":');
        unlinkSync(other);
      },
    ],
  ])('rewrites a file that %s, and keeps its generation', async (_, damage) => {
    const other = join(file, '../metadata-kep.json');
    await metadata.prepare(record, new Map());
    await metadata.update(claim, 'vf', [deviceWith('192.0.2.1/24')]);
    damage(other);
    expect(await metadata.update(claim, 'vf', [deviceWith('192.0.2.1/24')])).toMatchObject({ generation: 1 });
    for (const each of [file, other]) expect(await readMetadataFile(each)).toMatchObject({ generation: 1 });
  });

  it('rewrites a removed or damaged file when its sandbox is served, if prepare knew the content', async () => {
    await metadata.prepare(record, new Map([['vf', [deviceWith('192.0.2.1/24')]]]));
    const before = readFileSync(file, 'utf8');
    for (const spoil of [() => unlinkSync(file), () => truncateSync(file, 9)]) {
      spoil();
      await metadata.openGate(claim, 'sandbox-1');
      expect(readFileSync(file, 'utf8').trimEnd()).toBe(before.trimEnd());
    }
  });

  describe('with an unreadable claim record', () => {
    const recordPath = () => join(file, '../../claim.json');
    const otherFile = () => join(file, '../metadata-kep.json');
    const generationOf = async () => (await readMetadataFile(file)).generation;
    const replaceByDirectory = () => {
      unlinkSync(recordPath());
      mkdirSync(recordPath());
    };
    beforeEach(async () => {
      await metadata.prepare(record, new Map());
      await metadata.update(claim, 'vf', [deviceWith('192.0.2.1/24')]);
      await metadata.update(claim, 'vf', [deviceWith('192.0.2.2/24')]);
    });

    it.each([
      ['{"schema":', 'is not JSON'],
      ['null', 'has schema undefined, not 1'],
      ['', 'is not JSON'],
      ['{"schema":1,"claim":{"namespace":"default","name":"slow-net","uid":"u"},"requests":{}}', 'is damaged'],
    ])('rejects updates, and repairs the record at the next prepare: %j', async (text, message) => {
      writeFileSync(recordPath(), text);
      await expect(metadata.update(claim, 'vf', [deviceWith('192.0.2.3/24')])).rejects.toMatchObject({
        code: 'metadata-malformed',
        message: `claim record ${recordPath()} ${message}`,
        path: recordPath(),
        hint: expect.stringContaining('delete the pods'),
      });
      await open().prepare(record, new Map());
      expect(await metadata.update(claim, 'vf', [deviceWith('192.0.2.3/24')])).toMatchObject({ generation: 3 });
      expect(await generationOf()).toBe(3);
    });

    it('keeps a record of a newer version, and fails with an error that names the version', async () => {
      writeFileSync(recordPath(), '{"schema":2}');
      const refused = {
        code: 'metadata-version-unknown',
        message: `claim record ${recordPath()} has schema 2, not 1`,
        path: recordPath(),
        hint: expect.stringContaining('run the newer version'),
      };
      await expect(metadata.update(claim, 'vf', [deviceWith('192.0.2.2/24')])).rejects.toMatchObject(refused);
      await expect(metadata.prepare(record, new Map())).rejects.toMatchObject(refused);
      expect([readFileSync(recordPath(), 'utf8'), await generationOf()]).toEqual(['{"schema":2}', 2]);
    });

    it('keeps a record on a read error, which may be temporary', async () => {
      replaceByDirectory();
      const refused = { code: 'metadata-io', path: recordPath(), retriable: true };
      await expect(metadata.prepare(record, new Map())).rejects.toMatchObject(refused);
      await expect(metadata.unprepare(claim)).rejects.toMatchObject(refused);
      expect(await generationOf()).toBe(2);
    });

    it('continues above the highest generation in any readable file, even of a disabled layout', async () => {
      writeFileSync(recordPath(), '');
      writeFileSync(file, readFileSync(file, 'utf8').slice(0, 50));
      const { ino } = statSync(otherFile());
      metadata = bench.start({ layouts: ['v1'] });
      await metadata.prepare(record, new Map([['vf', [deviceWith('192.0.2.2/24')]]]));
      expect([await generationOf(), (await readMetadataFile(otherFile())).generation]).toEqual([3, 3]);
      expect(statSync(otherFile()).ino).toBe(ino);
    });

    it('continues above the highest generation if the generations of its files differ', async () => {
      writeFileSync(recordPath(), '');
      writeFileSync(otherFile(), readFileSync(otherFile(), 'utf8').replaceAll(/("generation": *)2/g, '$17'));
      await metadata.prepare(record, new Map());
      expect(await metadata.update(claim, 'vf', [deviceWith('192.0.2.3/24')])).toMatchObject({ generation: 8 });
    });

    it('derives the next generation from the current time if no file contains the last generation', async () => {
      await metadata.withdraw(claim);
      writeFileSync(recordPath(), '');
      await metadata.prepare(record, new Map());
      const before = await metadata.update(claim, 'vf', [deviceWith('192.0.2.3/24')]);
      expect(before.generation).toBeGreaterThan(1_700_000_000);
      expect((await metadata.update(claim, 'vf', [deviceWith('192.0.2.4/24')])).generation).toBe(before.generation + 1);
    });

    it('derives the next generation from the current time if one file is blank and another damaged', async () => {
      truncateSync(file);
      truncateSync(otherFile(), 50);
      writeFileSync(recordPath(), '');
      await metadata.prepare(record, new Map());
      const { generation } = await metadata.update(claim, 'vf', [deviceWith('192.0.2.3/24')]);
      expect(generation).toBeGreaterThan(1_700_000_000);
    });

    it('starts with generation 1 if the files belong to an earlier claim of the same name', async () => {
      for (const damage of [() => writeFileSync(recordPath(), ''), () => unlinkSync(recordPath())]) {
        const uid = randomUUID();
        damage();
        await metadata.prepare({ ...record, claim: { ...claim, uid } }, new Map());
        expect(existsSync(file)).toBe(false);
        const update = await metadata.update({ ...claim, uid }, 'vf', [deviceWith('192.0.2.1/24')]);
        expect(update).toMatchObject({ generation: 1 });
      }
      expect(readdirSync(bench.cdiDir)).toHaveLength(1);
    });

    it.each([[''], ['{"schema":2}']])('can still unprepare the claim: %j', async (text) => {
      writeFileSync(recordPath(), text);
      await metadata.unprepare(claim);
      expect(readdirSync(join(bench.dataDir, 'dra-device-metadata'))).toEqual([]);
      expect(readdirSync(bench.cdiDir)).toEqual([]);
    });

    it('keeps the claim when an earlier claim of the same name is removed', async () => {
      for (const damage of [() => writeFileSync(recordPath(), ''), () => unlinkSync(recordPath())]) {
        damage();
        await metadata.unprepare({ ...claim, uid: 'earlier' });
        expect(await generationOf()).toBe(2);
      }
    });

    it('excludes the claim and its files from the number of recorded claims and files', async () => {
      expect(metadata.isRecorded(claim)).toBe(true);
      writeFileSync(recordPath(), '');
      expect([metadata.isRecorded(claim), await metadata.countFiles()]).toEqual([false, 0]);
    });
  });
});
