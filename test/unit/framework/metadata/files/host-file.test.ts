import { execFileSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { holdDirectories } from '../../../../../src/framework/metadata/files/held-directories.ts';
import { hostPath, readFileIfThere, removeFile } from '../../../../../src/framework/metadata/files/host-file.ts';
import { putFile } from '../../../../../src/framework/metadata/files/mounted-file.ts';
import {
  type ClaimMetadata,
  type ClaimRecord,
  layoutNames,
  layouts,
} from '../../../../../src/framework/metadata/index.ts';
import { tempDir } from '../../../../doubles/temp-dir.ts';
import { Bench } from '../bench.ts';
import { claim, documentOf, kernel, place, podUid, recordOf } from '../samples.ts';

const record = recordOf(kernel);
const { devices } = documentOf(kernel);

let bench: Bench;
let metadata: ClaimMetadata;
beforeEach(() => {
  bench = new Bench();
  metadata = bench.start();
});
afterEach(() => bench[Symbol.dispose]());

const claimDir = () => join(bench.dataDir, 'dra-device-metadata/default_fast-net');

/** Replaces a directory of the driver with a link to a foreign directory. */
function replaceByLink(path: string): string {
  const elsewhere = join(bench.path, 'elsewhere');
  mkdirSync(elsewhere);
  writeFileSync(join(elsewhere, 'precious'), 'untouched');
  if (existsSync(path)) for (const name of readdirSync(path)) rmSync(join(path, name), { recursive: true });
  rmSync(path, { recursive: true, force: true });
  mkdirSync(dirname(path), { recursive: true });
  symlinkSync(elsewhere, path);
  return elsewhere;
}

describe('a symbolic link', () => {
  it.each([
    ['the metadata directory', () => dirname(claimDir())],
    ["the claim's directory", claimDir],
    ["the request's directory", () => join(claimDir(), 'vf')],
    ["the pod's directory", () => join(bench.downwardApiDir, podUid)],
  ])('in place of %s is rejected by prepare and update, and the error names the path', async (_what, pathOf) => {
    const path = pathOf();
    const elsewhere = replaceByLink(path);
    const contents = new Map([['vf', devices]]);
    await expect(metadata.prepare(record, contents)).rejects.toMatchObject({
      code: 'metadata-io',
      hint: `${path} is a symbolic link: remove it`,
    });
    expect(readdirSync(elsewhere)).toEqual(['precious']);
  });

  it.each(layoutNames)('in place of the file of %s is rejected, and its target is unchanged', async (name) => {
    await metadata.prepare(record, new Map());
    await metadata.update(claim, 'vf', devices);
    const { base, parts } = layouts[name].hostFile(bench, place(kernel));
    const path = join(base, ...parts);
    const target = join(bench.path, 'target');
    writeFileSync(target, 'untouched');
    rmSync(path);
    symlinkSync(target, path);
    await expect(metadata.update(claim, 'vf', [])).rejects.toMatchObject({
      message: `cannot update ${path}`,
      hint: `${path} is a symbolic link: remove it`,
    });
    expect(readFileSync(target, 'utf8')).toBe('untouched');
    // Unprepare removes the link itself.
    await metadata.unprepare(claim);
    expect(existsSync(path)).toBe(false);
    expect(readFileSync(target, 'utf8')).toBe('untouched');
  });

  it('in place of the record is not read', async () => {
    await metadata.prepare(record, new Map());
    const path = join(claimDir(), 'claim.json');
    const target = join(bench.path, 'target');
    writeFileSync(target, readFileSync(path));
    rmSync(path);
    symlinkSync(target, path);
    await expect(metadata.update(claim, 'vf', devices)).rejects.toThrow(`cannot read ${path}`);
  });

  it("in place of the claim's directory is not followed by unprepare", async () => {
    const elsewhere = replaceByLink(claimDir());
    await expect(metadata.unprepare(claim)).rejects.toThrow(/cannot read .*claim\.json/);
    expect(readdirSync(elsewhere)).toEqual(['precious']);
    expect(lstatSync(claimDir()).isSymbolicLink()).toBe(true);
  });

  it('above the configured directories is followed', async () => {
    const real = join(bench.path, 'real');
    mkdirSync(real);
    symlinkSync(real, bench.dataDir);
    await metadata.prepare(record, new Map([['vf', devices]]));
    expect(existsSync(join(real, 'dra-device-metadata/default_fast-net/vf/metadata.json'))).toBe(true);
  });
});

it('a path that is not a regular file is rejected without blocking, and the error names the path', async () => {
  await metadata.prepare(record, new Map());
  const path = join(claimDir(), 'vf/metadata.json');
  mkdirSync(dirname(path));
  execFileSync('mkfifo', [path]);
  await expect(metadata.update(claim, 'vf', devices)).rejects.toThrow(`cannot update ${path}`);
  const state = join(claimDir(), 'claim.json');
  rmSync(state);
  execFileSync('mkfifo', [state]);
  await expect(metadata.update(claim, 'vf', devices)).rejects.toThrow(`cannot read ${state}`);
});

describe('names used in paths', () => {
  const bad = ['', '.', '..', '../x', 'a/b', '/', 'nul\0', 'x'.repeat(254), '\ud800'];
  const withName: Record<string, (name: string) => ClaimRecord> = {
    'the namespace': (namespace) => ({ ...record, claim: { ...claim, namespace } }),
    'the claim': (name) => ({ ...record, claim: { ...claim, name } }),
    'the UID': (uid) => ({ ...record, claim: { ...claim, uid } }),
    'the pod': (uid) => ({ ...record, podUid: uid }),
    'the request': (name) => ({ ...record, requests: { [name]: { name, devices: [] } } }),
  };

  it.each(Object.keys(withName).flatMap((what) => bad.map((name) => [what, name] as const)))(
    'of %s: %j is rejected before anything is written',
    async (what, name) => {
      const build = withName[what] as (name: string) => ClaimRecord;
      await expect(metadata.prepare(build(name), new Map())).rejects.toMatchObject({ code: 'metadata-name-invalid' });
      expect(bench.files()).toEqual([]);
    },
  );

  it("can be as long as the API allows if they are not part of a container's path", async () => {
    const metadata = bench.start({ layouts: ['v1', 'kep', 'attributes-json'] });
    const long = { namespace: 'n'.repeat(63), name: 'c'.repeat(253), uid: claim.uid };
    const request = 'r'.repeat(63);
    const requests = { [request]: { name: request, devices: record.requests.vf?.devices ?? [] } };
    await metadata.prepare({ ...record, claim: long, requests }, new Map());
    const neighbour = { ...long, name: `${'c'.repeat(252)}d`, uid: 'other' };
    await metadata.prepare({ ...record, claim: neighbour, requests }, new Map());
    expect(await metadata.update(long, request, devices)).toMatchObject({ generation: 1 });
    expect(await metadata.update(neighbour, request, devices)).toMatchObject({ generation: 1 });
    for (const hostPath of bench.mounts(claim.uid).values()) expect(existsSync(hostPath)).toBe(true);
    await metadata.unprepare(long);
    expect(await metadata.read(neighbour, request)).toMatchObject({ generation: 1 });
    await metadata.unprepare(neighbour);
    expect(bench.files()).toEqual([]);
  });

  it('are rejected if they make a file name too long', async () => {
    const long = { ...claim, name: 'c'.repeat(253) };
    await expect(metadata.prepare({ ...record, claim: long }, new Map())).rejects.toThrow(
      /^default\/c{253}: file name c{253}\.vf\.json has 261 bytes, but at most 255 are possible$/,
    );
    expect(bench.files()).toEqual([]);
  });
});

describe('files and directories', () => {
  it('can be read by every user even if the umask is strict', async () => {
    const before = process.umask(0o077);
    try {
      await metadata.prepare(record, new Map());
      await metadata.update(claim, 'vf', devices);
    } finally {
      process.umask(before);
    }
    const modeOf = (path: string) => statSync(join(bench.path, path)).mode & 0o777;
    for (const file of bench.files()) {
      expect(modeOf(file), file).toBe(0o644);
      for (let dir = dirname(file); dir !== '.'; dir = dirname(dir)) expect(modeOf(dir), dir).toBe(0o755);
    }
  });

  it('leave no temporary files when a write fails', async () => {
    await metadata.prepare(record, new Map());
    mkdirSync(join(claimDir(), 'vf/metadata.json'), { recursive: true });
    await expect(metadata.update(claim, 'vf', devices)).rejects.toThrow('metadata.json');
    expect(bench.files().filter((file) => file.endsWith('.tmp'))).toEqual([]);
  });

  it('are written again even if another process has removed their open directory', () => {
    using dir = tempDir();
    const files = ['a', 'b'].map((name) => ({ base: dir.path, parts: ['pod', name] }));
    holdDirectories(() => {
      for (const file of files) {
        putFile(file, 'x');
        // As another process does.
        rmSync(join(dir.path, 'pod'), { recursive: true });
        expect(readFileIfThere(file)).toBeUndefined();
        removeFile(file);
      }
      for (const file of files) putFile(file, 'y');
    });
    expect(files.map((file) => readFileSync(hostPath(file), 'utf8'))).toEqual(['y', 'y']);
  });

  it('are opened once per directory, and closed when their holder is disposed of', () => {
    using dir = tempDir();
    const countOpen = () => readdirSync('/proc/self/fd').length;
    const before = countOpen();
    holdDirectories(() => {
      for (const name of ['a', 'b', 'c']) putFile({ base: dir.path, parts: ['one', 'two', name] }, 'x');
      // `one` and `two`.
      expect(countOpen()).toBe(before + 2);
    });
    expect(countOpen()).toBe(before);
  });
});
