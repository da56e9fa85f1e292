import fs, { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { InstanceFile, readInstance, settingsHere } from '../../../src/instance/instance-file.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { defaultSettings } from '../../doubles/settings.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const state = { hungWrites: [], keepsTaints: true, conditions: [] };
const settings = {
  ...defaultSettings(),
  nodeName: 'n',
  inventoryPolicy: '/etc/netdra/p.yaml',
  procSysDir: '/host/proc/sys',
  simulate: { pfs: 1, vfsPerPf: 8 },
};

function openDir() {
  const dir = tempDir();
  const logger = new RecordingLogger();
  const create = (driverName = settings.driverName) => {
    mkdirSync(join(dir.path, driverName), { recursive: true });
    return new InstanceFile(join(dir.path, driverName), { settings: { ...settings, driverName }, bootId: 'b', logger });
  };
  const path = join(dir.path, settings.driverName, 'instance.json');
  return { plugins: dir.path, path, logger, create, [Symbol.dispose]: () => dir[Symbol.dispose]() };
}

describe('the instance file', () => {
  afterEach(() => void vi.useRealTimers());

  it('contains the settings and reports of the driver, and tools find it for any driver name', () => {
    using dir = openDir();
    expect(readInstance(dir.plugins)).toBeUndefined();
    const file = dir.create('nic.example.com');
    using sync = vi.spyOn(fs, 'fsyncSync');
    file.write(state);
    file.write({ ...state, keepsTaints: false, conditions: [] });
    expect(sync).not.toHaveBeenCalled();
    const facts = readInstance(dir.plugins);
    expect(facts).toMatchObject({
      settings: { driverName: 'nic.example.com' },
      keepsTaints: false,
      conditions: [],
      bootId: 'b',
    });
    expect(facts && settingsHere(facts)).toMatchObject({
      simulate: { pfs: 1, vfsPerPf: 8 },
      procSysDir: '/host/proc/sys',
    });
    // The policy in force is among the facts.
    expect(facts && settingsHere(facts)).not.toHaveProperty('inventoryPolicy');
    // On the host, outside of the driver's container.
    const outside = facts && settingsHere({ ...facts, mounts: 'mnt:[1]' });
    expect(outside).toMatchObject({ simulate: { pfs: 1, vfsPerPf: 8 } });
    expect(outside).not.toHaveProperty('procSysDir');
    dir.create().write(state);
    expect(() => readInstance(dir.plugins)).toThrow('2 drivers have run on this node: ');
    expect(readInstance(dir.plugins, 'nic.example.com')?.settings.driverName).toBe('nic.example.com');
  });

  it('is reported as unreadable, with a remedy, if damaged', () => {
    using dir = openDir();
    dir.create().write(state);
    writeFileSync(dir.path, '{');
    expect(() => readInstance(dir.plugins)).toThrow(
      expect.objectContaining({
        code: 'instance-unreadable',
        hint: expect.stringMatching(/^run this as root; .* remove it/),
      }),
    );
    // Refused to root, too.
    expect(() => readInstance(dir.path)).toThrow(expect.objectContaining({ code: 'instance-unreadable' }));
  });

  it('has mode 0600, and is written only on changes, and only by the newest instance', () => {
    using dir = openDir();
    const old = dir.create();
    old.write(state);
    expect(statSync(dir.path).mode & 0o777).toBe(0o600);
    const { ino } = statSync(dir.path);
    old.write({ ...state });
    expect(statSync(dir.path).ino).toBe(ino);
    const facts = JSON.parse(readFileSync(dir.path, 'utf8'));
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 1_000 });
    const newer = JSON.stringify({ ...facts, startedAtMs: facts.startedAtMs + 1 });
    writeFileSync(dir.path, newer);
    old.write({ ...state, keepsTaints: false, conditions: [] });
    expect(readFileSync(dir.path, 'utf8')).toBe(newer);
    // The newer one has ended, as one that never became ready.
    old.regain();
    expect(readInstance(dir.plugins)).toMatchObject({ startedAtMs: facts.startedAtMs, keepsTaints: false });
    old.write(state);
    expect(readInstance(dir.plugins)).toMatchObject(state);
  });

  it.each([
    ['of an earlier boot', { bootId: 'a', startedAtMs: Date.now() - 1 }],
    ['of this boot with a start time in the future', { startedAtMs: Date.now() + 86_400_000 }],
  ])('is overwritten if it is %s', (_, earlier) => {
    using dir = openDir();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - 3_600_000 });
    const file = dir.create();
    file.write({ ...state, keepsTaints: false, conditions: [] });
    const facts = JSON.parse(readFileSync(dir.path, 'utf8'));
    writeFileSync(dir.path, JSON.stringify({ ...facts, ...earlier, keepsTaints: false, conditions: [] }));
    file.write(state);
    expect(readInstance(dir.plugins)).toMatchObject(state);
  });

  it('is rewritten if damaged, and the driver continues if it cannot write the file', () => {
    using dir = openDir();
    const file = dir.create();
    writeFileSync(dir.path, '{');
    expect(() => readInstance(dir.plugins)).toThrow(`cannot read the settings of the driver from ${dir.path}`);
    file.write(state);
    expect(readInstance(dir.plugins)).toMatchObject(state);
    rmSync(dirname(dir.path), { recursive: true });
    file.write({ ...state, keepsTaints: false, conditions: [] });
    expect(dir.logger.messages('warn')).toEqual([
      'cannot write the file from which tools on this node read the settings of the driver',
    ]);
  });
});
