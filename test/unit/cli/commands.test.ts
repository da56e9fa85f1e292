import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import type { Finding } from '../../../src/cli/finding.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const mainPath = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));

function netdra(args: string[], env: Record<string, string> = {}) {
  return spawnSync(process.execPath, [mainPath, ...args], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE, ...env },
  });
}

/** What is loaded with a file, before anything is run: imports of values at its top, and at theirs. */
function loadedWith(path: string, seen = new Set<string>()): Set<string> {
  if (seen.has(path)) return seen;
  seen.add(path);
  for (const [, names = '', from = ''] of readFileSync(path, 'utf8').matchAll(
    /^(?:import|export) ([^;']*?)\s*from '([^']+)'/gm,
  )) {
    const isType = names.startsWith('type ') || /^\{(\s*type [^,}]+,?)+\s*\}$/.test(names);
    if (isType) continue;
    if (from.startsWith('.')) loadedWith(join(dirname(path), from), seen);
    else seen.add(from);
  }
  return seen;
}

const device = {
  driver: 'sriov.netdra.dev',
  pool: 'node-1',
  name: '0000-3b-02-0',
  networkData: { interfaceName: 'net1', ips: ['192.0.2.7/24'] },
};
const document = (devices: object[]) => ({
  apiVersion: 'metadata.resource.k8s.io/v1beta1',
  kind: 'DeviceMetadata',
  metadata: { name: 'fast-net', namespace: 'apps', uid: 'c-1', generation: 1 },
  requests: [{ name: 'vf', devices }],
});

it('netdra doctor prints JSON on request, and its exit code tells whether there are problems', () => {
  using dir = tempDir();
  const flags = ['--kubelet-plugins-dir', '--kubelet-registry-dir', '--cdi-dir', '--nri-socket', '--cri-socket'];
  const { status, stdout } = netdra(['doctor', '-o', 'json', ...flags.map((flag) => `${flag}=${dir.path}/none`)]);
  expect(status).toBe(1);
  const findings: Finding[] = JSON.parse(stdout);
  expect(findings.find(({ check }) => check === 'NRI')).toEqual({
    check: 'NRI',
    level: 'problem',
    message: `off: there is no socket ${dir.path}/none`,
    fix: expect.stringContaining('disable = false'),
  });
  // Everything that is not well says what to do.
  expect(findings.filter(({ level, fix }) => level !== 'ok' && !fix)).toEqual([]);
});

describe('netdra metadata', () => {
  it('prints YAML with all digits of large numbers', () => {
    using dir = tempDir();
    const path = join(dir.path, 'metadata.json');
    const large = '{ "int": 9007199254740993 }';
    const text = JSON.stringify(document([{ ...device, attributes: { serial: 'LARGE' } }]));
    writeFileSync(path, text.replace('"LARGE"', large));
    const { stdout, stderr } = netdra(['metadata', path, '-o', 'yaml']);
    expect(stderr).toBe('');
    expect(stdout).toMatch(/^ *int: 9007199254740993$/m);
    expect(stdout).toMatch(/^ *interfaceName: net1$/m);
  });

  it('prints a file, with colours on request, and exits with a code that tells whether it is valid', () => {
    using dir = tempDir();
    const path = join(dir.path, 'metadata.json');
    writeFileSync(path, JSON.stringify(document([device])));
    const plain = netdra(['metadata', path]);
    expect([plain.status, plain.stderr]).toEqual([0, '']);
    expect(plain.stdout).toContain(`${path}: valid\n  claim       apps/fast-net (c-1)\n  generation  1\n`);
    const coloured = netdra(['metadata', path], { FORCE_COLOR: '1' });
    expect(coloured.stdout).toContain('\u001b[32mvalid\u001b[39m');
    writeFileSync(path, JSON.stringify(document([{ ...device, pool: 'Node 1' }])));
    const wrong = netdra(['metadata', path, '-o', 'json']);
    expect(wrong.status).toBe(1);
    expect(JSON.parse(wrong.stdout).problem).toMatch(/pool "Node 1" is not a lower-case DNS name/);
  });
});

describe('netdra', () => {
  it.each([
    [['doctor', '--frobnicate'], 2, /unknown option '--frobnicate'/],
    [['claims', '-o', 'xml'], 2, /Allowed choices are table, json/],
    [['metadata', 'fast-net', '--kubelet-plugins-dir=/nowhere'], 1, /no driver has stored its state in \/nowhere/],
    [['seccomp', '--install', 'netdra.json'], 2, /an absolute path is needed/],
    [['metadata'], 2, /missing required argument 'path\|claim'/],
    [['metadata', 'fast-net', 'slow-net'], 2, /too many arguments/],
  ])('rejects %j with exit code %d and the reason', (args, code, message) => {
    const { status, stderr } = netdra(args);
    expect(status).toBe(code);
    expect(stderr).toMatch(message);
  });

  it('loads heavy modules only for commands that need them', () => {
    const packages = [...loadedWith(join(dirname(mainPath), 'program.ts'))].filter(
      (name) => !name.startsWith('/') && !name.startsWith('node:'),
    );
    expect(packages).toEqual(['commander']);
    // The way of looking at it sees what is heavy.
    expect([...loadedWith(join(dirname(mainPath), 'app/app.ts'))]).toContain('@grpc/grpc-js');
  });

  it('loads no native package for kubectl netdra, which also runs on machines without VFs', () => {
    const tools = join(dirname(mainPath), 'cli');
    const files = readdirSync(join(tools, 'cluster')).map((name) => join(tools, 'cluster', name));
    const packages = files.flatMap((path) => [...loadedWith(path)]);
    expect(packages).toContain('commander');
    for (const native of ['netlink', 'koffi']) expect(packages).not.toContain(native);
    expect([...loadedWith(join(tools, 'claims.ts'))]).toContain('netlink');
  });
});
