import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { defaultGateProgram, installGate } from '../../../../../src/framework/metadata/gate/index.ts';
import { tempDir } from '../../../../doubles/temp-dir.ts';

let dir: ReturnType<typeof tempDir>;
let from: string;
let dataDir: string;
let path: string;
beforeEach(() => {
  dir = tempDir();
  from = join(dir.path, 'netdra-gate');
  dataDir = join(dir.path, 'plugins/sriov.netdra.dev');
  path = join(dataDir, 'bin/netdra-gate');
  writeFileSync(from, '#!/bin/sh\necho 1\n', { mode: 0o644 });
});
afterEach(() => dir[Symbol.dispose]());

const install = () => installGate({ from, dataDir });

describe('installGate', () => {
  it('copies the program, and nothing else, to a path where the runtime can execute it', async () => {
    expect(await install()).toBe(path);
    expect(readFileSync(path, 'utf8')).toBe(readFileSync(from, 'utf8'));
    expect(statSync(path).mode & 0o777).toBe(0o755);
    expect(readdirSync(join(dataDir, 'bin'))).toEqual(['netdra-gate']);
  });

  it('does not rewrite an identical program', async () => {
    await install();
    const { ino, mtimeNs } = statSync(path, { bigint: true });
    await install();
    expect(statSync(path, { bigint: true })).toMatchObject({ ino, mtimeNs });
  });

  it.each([
    ['another program', () => writeFileSync(path, 'older')],
    ['a program of the same length', () => writeFileSync(path, '#!/bin/sh\necho 2\n')],
  ])('replaces %s without disturbing running copies', async (_what, change) => {
    await install();
    change();
    const { ino } = statSync(path);
    await install();
    expect(readFileSync(path, 'utf8')).toBe(readFileSync(from, 'utf8'));
    expect(statSync(path).ino).not.toBe(ino);
  });

  it('replaces a symlink itself, not its target', async () => {
    mkdirSync(join(dataDir, 'bin'), { recursive: true });
    writeFileSync(join(dir.path, 'elsewhere'), 'x');
    symlinkSync(join(dir.path, 'elsewhere'), path);
    await install();
    expect(readFileSync(join(dir.path, 'elsewhere'), 'utf8')).toBe('x');
  });

  it('removes leftovers of a killed instance, but not a file that another instance is writing', async () => {
    mkdirSync(join(dataDir, 'bin'), { recursive: true });
    const [old, fresh] = ['old', 'new'].map((name) => join(dataDir, `bin/.netdra-gate.${name}.tmp`));
    for (const each of [old, fresh]) writeFileSync(each as string, '');
    utimesSync(old as string, 0, 0);
    await install();
    expect([existsSync(old as string), existsSync(fresh as string)]).toEqual([false, true]);
  });

  it('can be run by two instances at once', async () => {
    await Promise.all([install(), install(), install()]);
    expect(readdirSync(join(dataDir, 'bin'))).toEqual(['netdra-gate']);
  });

  it('names the remedy if the program to install is missing', async () => {
    from = join(dir.path, 'none');
    await expect(install()).rejects.toMatchObject({
      code: 'gate-program-missing',
      message: `cannot read the start gate program ${from}`,
      path: from,
      hint: expect.stringContaining('npm run build:programs'),
    });
    expect(existsSync(dataDir)).toBe(false);
  });

  it('names the remedy if the program cannot be installed', async () => {
    mkdirSync(dataDir, { recursive: true });
    writeFileSync(join(dataDir, 'bin'), '');
    await expect(install()).rejects.toMatchObject({
      code: 'gate-not-installed',
      path,
      hint: expect.stringContaining('--start-gate=file'),
    });
  });
});

it('the gate program is found in its build directory', () => {
  expect(defaultGateProgram()).toMatch(/\/dist\/programs\/netdra-gate$/);
});
