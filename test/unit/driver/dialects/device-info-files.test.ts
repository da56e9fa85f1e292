import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DeviceInfoFiles } from '../../../../src/driver/dialects/index.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const [one, two] = [1, 2].map((index) => ({
  name: `intel.com-nic-0000:3b:02.${index}-device.json`,
  text: `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:02.${index}"}}`,
})) as [{ name: string; text: string }, { name: string; text: string }];

describe('DeviceInfoFiles', () => {
  let root: ReturnType<typeof tempDir>;
  let files: DeviceInfoFiles;
  const dir = () => join(root.path, 'devinfo/dp');
  const recordDir = () => join(root.path, 'state/device-info');
  const names = (path = dir()) => (existsSync(path) ? readdirSync(path).sort() : []);

  beforeEach(() => {
    root = tempDir();
    files = new DeviceInfoFiles({ dir: dir(), recordDir: recordDir() });
  });
  afterEach(() => root[Symbol.dispose]());

  it('are world-readable and read-only, in a world-accessible directory', () => {
    files.write('a', [one]);
    expect(readFileSync(join(dir(), one.name), 'utf8')).toBe(one.text);
    expect(statSync(join(dir(), one.name)).mode & 0o777).toBe(0o444);
    expect(statSync(dir()).mode & 0o777).toBe(0o755);
    expect(names()).toEqual([one.name]);
  });

  it('replace files that another process has left there, and can be rewritten', () => {
    mkdirSync(dir(), { recursive: true });
    writeFileSync(join(dir(), one.name), 'old');
    chmodSync(join(dir(), one.name), 0o444);
    for (let n = 0; n < 2; n++) files.write('a', [one]);
    expect(readFileSync(join(dir(), one.name), 'utf8')).toBe(one.text);
  });

  it('go with their claim, and those of others stay', () => {
    files.write('a', [one]);
    files.write('b', [two]);
    writeFileSync(join(dir(), 'of-a-device-plugin.json'), '{}');
    files.removeClaim('a');
    expect(names()).toEqual([two.name, 'of-a-device-plugin.json']);
    expect(files.claimUids()).toEqual(['b']);
    files.removeClaim('never heard of');
  });

  it('stay when another process has overwritten them, or another claim uses them', () => {
    files.write('a', [one, two]);
    files.write('b', [two]);
    rmSync(join(dir(), one.name));
    writeFileSync(join(dir(), one.name), 'theirs');
    files.removeClaim('a');
    expect(names()).toEqual([one.name, two.name]);
    files.removeClaim('b');
    expect(names()).toEqual([one.name]);
  });

  it('that a claim has not any more go when it is written again', () => {
    files.write('a', [one, two]);
    files.write('a', [two]);
    expect(names()).toEqual([two.name]);
    files.write('a', []);
    expect([names(), files.claimUids()]).toEqual([[], []]);
  });

  it('are found by their record, however far writing and removing came', () => {
    files.write('a', [one, two]);
    rmSync(join(dir(), two.name));
    writeFileSync(join(dir(), `.${two.name}.tmp`), '{"ty');
    writeFileSync(join(recordDir(), '.b.json.tmp'), '[');
    expect(files.claimUids()).toEqual(['a']);
    files.removeClaim('a');
    files.removeClaim('b');
    expect([names(), names(recordDir())]).toEqual([[], []]);
  });

  describe('with a record that is damaged', () => {
    const recordPath = (uid: string) => join(recordDir(), `${uid}.json`);
    const damaged = (uid: string) => ({ code: 'metadata-malformed', path: recordPath(uid), hint: expect.any(String) });
    beforeEach(async () => {
      files.write('a', [one]);
      files.write('b', [two]);
    });

    it.each(['', '[{"name"', 'null', '[{"name":1}]'])('stay if nothing else says which they are: %j', (text) => {
      writeFileSync(recordPath('a'), text);
      expect(() => files.removeClaim('a')).toThrow(expect.objectContaining(damaged('a')));
      expect([names(), files.claimUids()]).toEqual([
        [one.name, two.name],
        ['a', 'b'],
      ]);
    });

    it('stay with an orphaned claim that has them too, and go with one whose devices are known', () => {
      files.write('c', [two]);
      writeFileSync(recordPath('b'), '');
      expect(() => files.removeClaim('c')).toThrow(expect.objectContaining(damaged('b')));
      expect(names()).toEqual([one.name, two.name]);
      files.removeClaim('a', [one]);
      expect(names()).toEqual([two.name]);
    });
  });

  it('say where they cannot be written', () => {
    mkdirSync(join(root.path, 'devinfo'));
    writeFileSync(dir(), 'no directory');
    expect(() => files.write('a', [one])).toThrow(
      expect.objectContaining({ code: 'metadata-io', path: join(dir(), one.name) }),
    );
    expect(() => files.write('../a', [one])).toThrow(expect.objectContaining({ code: 'metadata-name-invalid' }));
    expect(() => files.write('b', [{ ...one, name: '../x' }])).toThrow(
      expect.objectContaining({ code: 'metadata-name-invalid' }),
    );
    expect(files.claimUids()).toEqual(['a']);
  });
});
