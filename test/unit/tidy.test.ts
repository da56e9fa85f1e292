import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { repository as repo } from '../../scripts/run-command.ts';
import { schemaVersion } from '../../src/driver/state/store-schema.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const longestFunction = 60;
const longestFile = 350;
/** `Pick` and `Omit`: what code needs of another part is an interface with a name of its own. */
const mostCutTypes = 120;
/** Tests: a set-up and its cases are read together. */
const longestTestFunction = 80;
const longestTestFile = 500;
/** One class each: the simulated node, and the rules that it keeps. */
const notSplit = ['test/simulation/checks.ts', 'test/simulation/world.ts'];

/** For Biome, which looks at all files: on a busy machine that takes long. */
const patient = { timeout: 120_000 };

/** Rooms of `src`, and the rooms that each may import. */
const rooms: Record<string, readonly string[]> = {
  cli: ['instance', 'driver', 'framework', 'node', 'lib', 'nri'],
  app: ['instance', 'driver', 'framework', 'node', 'lib', 'nri'],
  instance: ['driver', 'framework', 'node', 'lib'],
  driver: ['framework', 'node', 'lib', 'nri'],
  framework: ['lib'],
  node: ['lib'],
  lib: [],
  nri: [],
};
/** Rooms of `src/driver`, from the ground floor up: each imports only rooms of lower floors. */
const driverFloors = [
  ['model'],
  ['api', 'events', 'state'],
  ['addresses', 'dialects', 'vf'],
  ['claims', 'devices', 'drift'],
  ['nodeview', 'policy', 'sandbox'],
  ['recovery'],
  ['composition'],
];

function filesBelow(folder: string, pattern: RegExp): string[] {
  return readdirSync(join(repo, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && pattern.test(entry.name))
    .map((entry) => relative(repo, join(entry.parentPath, entry.name)))
    .filter((path) => !/(^|\/)(node_modules|dist)\//.test(path));
}

const projectPages = readdirSync(repo).filter((name) => name.endsWith('.md'));
const read = (path: string) => readFileSync(join(repo, path), 'utf8');
const sources = ['src', 'nri'].flatMap((folder) => filesBelow(folder, /\.ts$/));

/** First folder below `src`, or `nri`; of other files the path itself. */
const roomOf = (path: string) => /^(?:src\/)?([^/]+)\//.exec(path)?.[1] ?? path;
/** First folder below `src/driver`, and its floor. */
const driverRoomOf = (path: string) => /^src\/driver\/([^/]+)/.exec(path)?.[1];
const floorOf = (path: string) => driverFloors.findIndex((floor) => floor.includes(driverRoomOf(path) ?? ''));

type Arrow = readonly [from: string, to: string];

/** Names of the modules that a file imports or exports from. @param kind `values`: without those that only types need */
function modulesOf(text: string, kind: 'all' | 'values'): string[] {
  const statements = text.matchAll(/^(?:import|export)(\s+type\b)?[^;']*?\bfrom\s*'([^']+)'|\bimport\(\s*'([^']+)'/gm);
  return [...statements]
    .filter(([, isType]) => kind === 'all' || isType === undefined)
    .map(([, , name = '', dynamic = name]) => dynamic);
}

/** Imports of the repository's own files. */
function importsOf(path: string, text: string, kind: 'all' | 'values' = 'all'): Arrow[] {
  const own = modulesOf(text, kind).filter((name) => name.startsWith('.'));
  return own.map((name) => [path, relative(repo, resolve(repo, dirname(path), name))]);
}

/** Imports that leave their room for one that is not below it: `from → to`. */
function forbiddenImports(path: string, text: string): string[] {
  const isForbidden = ([from, to]: Arrow) => {
    if (!/^(src|nri)\//.test(to)) return false;
    if (roomOf(to) !== roomOf(from)) return rooms[roomOf(from)]?.includes(roomOf(to)) === false;
    return driverRoomOf(to) !== driverRoomOf(from) && floorOf(to) >= floorOf(from);
  };
  return importsOf(path, text)
    .filter(isForbidden)
    .map((arrow) => arrow.join(' → '));
}

/** Arrows that are part of a circle, or lie between two. */
function circular(arrows: readonly Arrow[]): string[] {
  const [from, to] = [new Set(arrows.map(([each]) => each)), new Set(arrows.map(([, each]) => each))];
  const rest = arrows.filter((arrow) => to.has(arrow[0]) && from.has(arrow[1]));
  return rest.length < arrows.length ? circular(rest) : rest.map((arrow) => arrow.join(' → '));
}

/** Whether the function only groups tests, like that of `describe`: the tests are functions of their own. */
function isGroupOfTests(path: string, line: number, lines: number): boolean {
  const body = read(path)
    .split('\n')
    .slice(line - 1, line - 1 + lines);
  const indent = (text: string) => text.length - text.trimStart().length;
  const depth = indent(body[0] ?? '') + 2;
  return body.some((text) => indent(text) === depth && /^(it|describe)[.(]/.test(text.trimStart()));
}

function runBiome(args: string[], cwd: string) {
  const result = spawnSync(join(repo, 'node_modules/.bin/biome'), args, { cwd, encoding: 'utf8' });
  if (result.error !== undefined) throw result.error;
  return result;
}

/** Functions over the limit, with all their lines, by Biome's own parser: `path:line: lines`. */
function longFunctions(folders: string[], limit: number): string[] {
  using dir = tempDir();
  const rule = { noExcessiveLinesPerFunction: { level: 'error', options: { maxLines: Math.round(limit / 2) } } };
  const linter = { rules: { preset: 'none', complexity: rule } };
  writeFileSync(join(dir.path, 'biome.json'), JSON.stringify({ root: true, linter, assist: { enabled: false } }));
  const args = ['lint', `--config-path=${dir.path}`, '--reporter=github', '--max-diagnostics=none', ...folders];
  return [...runBiome(args, repo).stdout.matchAll(/noExcessiveLinesPerFunction,file=([^,]+),line=(\d+),endLine=(\d+)/g)]
    .map(([, path = '', line, end]) => ({ path: relative(repo, path), line, lines: Number(end) - Number(line) + 1 }))
    .filter(({ lines }) => lines > limit)
    .filter(({ path, line, lines }) => !isGroupOfTests(path, Number(line), lines))
    .map(({ path, line, lines }) => `${path}:${line}: ${lines}`);
}

/** Modules of Node.js by which code reaches the operating system. `node:sqlite` is allowed: the store is the driver's database. */
const systemModules =
  /'node:(?:child_process|cluster|dgram|dns|fs|http2?|https|inspector|net|os|process|tls|worker_threads)\b/;

/** What `driver` may not have: its ports reach the operating system for it. `path: line`. */
function systemUses(path: string, text: string): string[] {
  const opensFiles = (module: string) => systemModules.test(read(join('src/lib', module)));
  return text
    .split('\n')
    .filter((line) => {
      const [, module] = /^import (?!type ).*\/lib\/([^']+)'/.exec(line) ?? [];
      return systemModules.test(line) || line.includes('/proc') || (module !== undefined && opensFiles(module));
    })
    .map((line) => `${path}: ${line.trim()}`);
}

describe('the rooms of src (folders with import rules)', () => {
  it('are all listed in this test', () => {
    const folders = Object.keys(rooms).filter((room) => room !== 'nri');
    expect(readdirSync(join(repo, 'src')).sort()).toEqual([...folders, 'main.ts', 'program.ts'].sort());
  });

  it('import only lower rooms', () => {
    expect(sources.flatMap((path) => forbiddenImports(path, read(path)))).toEqual([]);
  });

  it('are checked by a rule that finds a forbidden import', () => {
    const text = "import { a } from '../../driver/a.ts';\nimport { b } from '../../lib/b.ts';";
    expect(forbiddenImports('src/node/sriov/x.ts', text)).toEqual(['src/node/sriov/x.ts → src/driver/a.ts']);
    const inDriver = "import type { A } from '../sandbox/a.ts';\nexport { b } from '../model/b.ts';";
    expect(forbiddenImports('src/driver/vf/x.ts', inDriver)).toEqual(['src/driver/vf/x.ts → src/driver/sandbox/a.ts']);
  });

  it('inside driver are assigned to floors, each of which may import only from lower floors', () => {
    expect(readdirSync(join(repo, 'src/driver')).sort()).toEqual(driverFloors.flat().sort());
  });

  it('do not re-export another room of driver', () => {
    const isForeign = ([from, to]: Arrow) => driverRoomOf(from) !== driverRoomOf(to);
    const exported = (path: string) => importsOf(path, read(path).replaceAll(/^import\b/gm, ''));
    expect(
      sources
        .filter((path) => path.startsWith('src/driver/'))
        .flatMap(exported)
        .filter(isForeign),
    ).toEqual([]);
  });

  it('load no npm package in driver/model, the lowest room of driver', () => {
    const loaded = new Set<string>();
    const load = (path: string): string[] => {
      if (loaded.has(path)) return [];
      loaded.add(path);
      const packages = modulesOf(read(path), 'values').filter((name) => !/^(\.|node:)/.test(name));
      const next = importsOf(path, read(path), 'values').flatMap(([, to]) => load(to));
      return [...packages.map((name) => `${path} loads ${name}`), ...next];
    };
    expect(filesBelow('src/driver/model', /\.ts$/).flatMap(load)).toEqual([]);
  });

  it('have no import cycles between files or folders', () => {
    const values = sources.flatMap((path) => importsOf(path, read(path), 'values'));
    expect(circular(values)).toEqual([]);
    const folderOf = (path: string) =>
      /^src\/(?:driver|framework|node)\/[^/]+\/|^src\/[^/]+\/|^nri\//.exec(path)?.[0] ?? path;
    const all = sources.flatMap((path) => importsOf(path, read(path)));
    expect(
      circular(all.map(([from, to]): Arrow => [folderOf(from), folderOf(to)]).filter(([from, to]) => from !== to)),
    ).toEqual([]);
    expect(
      circular([
        ['a', 'b'],
        ['b', 'c'],
        ['c', 'b'],
        ['c', 'd'],
      ]),
    ).toEqual(['b → c', 'c → b']);
  });

  it('contain no operating system code in driver', () => {
    const driver = sources.filter((path) => path.startsWith('src/driver/'));
    expect(driver.flatMap((path) => systemUses(path, read(path)))).toEqual([]);
  });

  it.each([
    "import { readFile } from 'node:fs/promises';",
    "import type { Socket } from 'node:net';",
    "import { replaceFile } from '../../lib/replace-file.ts';",
    "const path = '/proc/self/ns/net';",
  ])('are checked by a rule that finds %s', (line) => {
    expect(systemUses('src/driver/x.ts', line)).toEqual([`src/driver/x.ts: ${line}`]);
  });

  it('do not import tests into folders that are built or shipped without them', () => {
    const shipped = ['src', 'nri', 'programs', 'deploy'].flatMap((folder) => filesBelow(folder, /\.ts$/));
    const imports = (path: string) =>
      [...read(path).matchAll(/'((?:\.\.\/)+(?:e2e|test)\/[^']+)'/g)].map(([, to]) => `${path} → ${to}`);
    expect(shipped.flatMap(imports)).toEqual([]);
  });
});

it('the picture of the rooms names their folders', () => {
  const names = ['.', 'driver', 'framework', 'node'].flatMap((room) =>
    readdirSync(join(repo, 'src', room), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name),
  );
  const picture = read('docs/architecture.svg');
  expect(names.filter((name) => !new RegExp(`<text.*\\b${name}\\b.*</text>`).test(picture))).toEqual([]);
});

describe('sizes and names', () => {
  it(`no function has more than ${longestFunction} lines`, patient, () => {
    expect(longFunctions(['src', 'nri'], longestFunction)).toEqual([]);
    // The rule finds long functions where there are some.
    expect(longFunctions(['src/driver'], 40)).not.toEqual([]);
  });

  it(`no file has more than ${longestFile} lines`, () => {
    const lines = (path: string) => read(path).split('\n').length - 1;
    expect(sources.filter((path) => lines(path) > longestFile)).toEqual([]);
  });

  it(
    `no function of tests has more than ${longestTestFunction} lines, and no file more than ${longestTestFile}`,
    patient,
    () => {
      const files = ['test', 'e2e'].flatMap((folder) => filesBelow(folder, /\.ts$/));
      const long = files.filter((path) => read(path).split('\n').length - 1 > longestTestFile);
      expect(long.sort()).toEqual(notSplit);
      expect(longFunctions(['test', 'e2e'], longestTestFunction)).toEqual([]);
    },
  );

  it('a lint rule rejects literals spread into a literal', () => {
    const refused = ['({ ...{ a }, b })', '[...[a], b]', '[...([a] as const), b]', '({ ...({ a } satisfies A), b })'];
    const allowed = ['({ ...(a ? { b } : {}) })', '({ ...a })', '[...a.map(() => ({ a })), b]'];
    const plugins = [join(repo, 'scripts/no-spread-literals.grit')];
    const config = { root: true, linter: { rules: { preset: 'none' } }, plugins };
    using dir = tempDir();
    writeFileSync(join(dir.path, 'biome.json'), JSON.stringify(config));
    writeFileSync(join(dir.path, 'x.ts'), [...refused, ...allowed].map((text) => `f(${text});\n`).join(''));
    const { stdout } = runBiome(['lint', '--reporter=github', 'x.ts'], dir.path);
    expect(
      [...stdout.matchAll(/error title=(\w+),file=.*,line=(\d+),/g)].map(([, rule, line]) => `${rule} ${line}`),
    ).toEqual(refused.map((_, index) => `plugin ${index + 1}`));
  });

  it(`src uses Pick and Omit at most ${mostCutTypes} times`, () => {
    const cut = sources.flatMap((path) => read(path).match(/\b(?:Pick|Omit)</g) ?? []);
    expect(cut.length).toBeGreaterThan(0);
    expect(cut.length).toBeLessThanOrEqual(mostCutTypes);
  });

  it('classes and interfaces of src have unique names', () => {
    const places = new Map<string, string[]>();
    for (const path of sources.filter((each) => each.startsWith('src/'))) {
      for (const [, name = ''] of read(path).matchAll(/^(?:export )?(?:abstract )?(?:class|interface) (\w+)/gm)) {
        places.set(name, [...(places.get(name) ?? []), path]);
      }
    }
    expect([...places].filter(([, paths]) => paths.length > 1)).toEqual([]);
  });
});

it('no file contains merge conflict markers', () => {
  const texts = ['docs', 'deploy', 'examples'].flatMap((folder) => filesBelow(folder, /\.(md|yaml|json)$/));
  const marked = (path: string) => /^(<{7} |={7}$|>{7} )/m.test(read(path));
  expect([...texts, ...projectPages].filter(marked)).toEqual([]);
});

it('the documentation names the current store schema version', () => {
  const upgrade = read('docs/upgrade.md');
  expect(upgrade).toMatch(new RegExp(`\\| 0\\.1\\.0 \\| ${schemaVersion} \\|`));
  expect(upgrade.replaceAll(/\s+/g, ' ')).toContain(
    `has schema ${schemaVersion + 1}, this version knows ${schemaVersion}`,
  );
  expect(read('CHANGELOG.md')).toMatch(new RegExp(`State has schema ${schemaVersion}\\b`));
});
