import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { V1Pod } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { makeBundle } from '../../../src/cli/cluster/bundle.ts';
import { redactObject, redactText } from '../../../src/cli/cluster/redact.ts';
import { explain } from '../../../src/lib/errors.ts';
import { buildClaim, testDriver } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { installOn, options, startCluster } from './cluster-with-pods.ts';

const removed = '[removed]';

describe('makeBundle', () => {
  it('collects objects, tool output and logs without secrets, and lists what is missing', async () => {
    await using bench = await startCluster();
    using dir = tempDir();
    const { api, cluster } = bench;
    for (const node of ['node-1', 'node-2']) installOn(api, node);
    // The last one selects by attributes alone, and has no configuration.
    for (const driver of [testDriver, 'gpu.example.com', 'any']) {
      const spec = driver === 'any' ? {} : { selectors: [{ cel: { expression: `device.driver == "${driver}"` } }] };
      const object = {
        apiVersion: 'resource.k8s.io/v1',
        kind: 'DeviceClass',
        metadata: { name: `of-${driver}` },
        spec,
      };
      api.create(object as never);
    }
    api.edit<V1Pod>(
      'Pod',
      `netdra-node-1-${testDriver}`,
      ({ spec }) => Object.assign(spec!.containers[0]!, { env: [{ name: 'PROXY_PASSWORD', value: 'hunter2' }] }),
      'netdra',
    );
    const parameters = { cni: { etcd: { password: 'hunter2' }, url: 'https://joe:hunter2@etcd' } };
    const config = [{ source: 'FromClaim' as const, parameters }];
    const deviceClassName = 'of-any';
    api.create(buildClaim('a', { requests: [{ name: 'vf', devices: ['vf-0'], deviceClassName }], config }));
    const token = 'eyJhbGciOi.eyJzdWIiOi.c2ln';
    cluster.log = `{"msg":"GET","authorization":"Bearer abc.def"}\n{"token":"hunter2"} ${token}\n`;
    cluster.answer = {
      exitCode: 0,
      stdout: JSON.stringify({ args: ['--password=hunter2'], device: 'vf-0' }),
      stderr: '',
    };
    const out = join(dir.path, 'bundle');
    const bundle = await makeBundle(cluster, { ...options, out, nodes: ['node-1'] });
    expect(bundle.files).toEqual([
      'claims.json',
      'deviceclasses.json',
      'missing.txt',
      'networkdevicepolicies.json',
      'nodenetworkdevices.json',
      ...['claims.json', 'doctor.json', 'driver-debug.log', 'driver.log', 'inventory.json'].map(
        (name) => `nodes/node-1/${name}`,
      ),
      'pods.json',
      'resourceslices.json',
      'status.json',
    ]);
    const classes = JSON.parse(readFileSync(join(out, 'deviceclasses.json'), 'utf8')) as {
      metadata: { name: string };
    }[];
    expect(classes.map(({ metadata }) => metadata.name)).toEqual(['of-any', `of-${testDriver}`]);
    const texts = bundle.files.map((path) => readFileSync(join(out, path), 'utf8'));
    expect(texts.filter((text) => /hunter2|eyJ|abc\.def/.test(text))).toEqual([]);
    expect(JSON.parse(readFileSync(join(out, 'nodes/node-1/doctor.json'), 'utf8'))).toEqual({
      args: ['--password=[removed]'],
      device: 'vf-0',
    });
    expect(bundle.missing).toEqual(['nodes/node-1/driver-previous.log: previous terminated container not found']);
    expect(statSync(out).mode & 0o777).toBe(0o700);
    expect(await makeBundle(cluster, { ...options, out, nodes: [] }).catch(explain)).toMatch(
      /^cannot make the folder .*bundle: EEXIST: .* \(name another folder with --out\)$/,
    );
    const never = join(dir.path, 'never');
    expect(await makeBundle(cluster, { ...options, out: never, nodes: ['moon'] }).catch(explain)).toMatch(
      /on node moon$/,
    );
    expect(existsSync(never)).toBe(false);
  });

  it.each([
    ['many', 90_000, 'x'.repeat(20)],
    ['long', 1_000, 'x'.repeat(8_000)],
  ])('collects the end of a log of %s lines, and says that its beginning is missing', async (_, count, text) => {
    await using bench = await startCluster();
    using dir = tempDir();
    const { api, cluster } = bench;
    installOn(api, 'node-1');
    cluster.log = Array.from({ length: count }, (_, index) => `{"line":${index},"msg":"${text}"}\n`).join('');
    const out = join(dir.path, 'bundle');
    const { missing } = await makeBundle(cluster, { ...options, out, nodes: [] });
    const log = readFileSync(join(out, 'nodes/node-1/driver.log'), 'utf8');
    const [first = '', ...others] = log.trimEnd().split('\n');
    expect(JSON.parse(first).line).toBe(count - 1 - others.length);
    expect(JSON.parse(others.at(-1) ?? '').line).toBe(count - 1);
    expect(log.length).toBeLessThanOrEqual(4_000_000);
    expect(missing).toContainEqual(expect.stringMatching(/^nodes\/node-1\/driver\.log: only its last \d+ lines$/));
  });

  it.each([
    ['-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----', '[removed]'],
    ['authorization: Basic am9lOng=', 'authorization: Basic [removed]'],
    [
      '{"cause":"{\\"password\\": \\"x y\\", \\"a\\": 1}"}',
      '{"cause":"{\\"password\\": \\"[removed]\\", \\"a\\": 1}"}',
    ],
    ['x-eyJhbGciOi.eyJzdWIiOi.c2ln', '[removed]'],
    ['xtoken-tokens=abc', 'xtoken-tokens=[removed]'],
    ['{"name":"a.token-key","value":"x"}', '{"name":"a.token-key","value":"[removed]"}'],
    ['api_key=abc&page=1', 'api_key=[removed]&page=1'],
    ['{"password":"abc\\"def","a":1}', '{"password":"[removed]","a":1}'],
    [
      '{"cause":"{\\"password\\":\\"abc\\\\\\"def\\",\\"a\\":1}"}',
      '{"cause":"{\\"password\\":\\"[removed]\\",\\"a\\":1}"}',
    ],
    ['{"password":"cut off', '{"password":"[removed]"'],
    ['{"tokens":["a","b"],"n":1}', '{"tokens":"[removed]","n":1}'],
    ['{"secretKey":{"x":"y"},"n":1}', '{"secretKey":"[removed]","n":1}'],
    ['{"args":["--token","abc","-v"]}', '{"args":["--token","[removed]","-v"]}'],
    ['curl --proxy-password x --retry 3', 'curl --proxy-password [removed] --retry 3'],
    ['curl --proxy-password=x --retry 3', 'curl --proxy-password=[removed] --retry 3'],
    ['GET https://user-only@host/a', 'GET https://[removed]@host/a'],
    ['{"name":"DB_PWD","value":"x y"}', '{"name":"DB_PWD","value":"[removed]"}'],
    ['DB_PWD=x TZ=UTC', 'DB_PWD=[removed] TZ=UTC'],
    [
      'claim apps/fast-net: device 0000:3b:02.0, 02:00:00:00:00:01',
      'claim apps/fast-net: device 0000:3b:02.0, 02:00:00:00:00:01',
    ],
  ])('redacts secrets in %j: %j', (text, redacted) => {
    expect(redactText(text)).toBe(redacted);
  });

  it('takes linear time for long words', () => {
    // Less than a second, and minutes in quadratic time.
    for (const word of ['token', '-token', 'eyJ-']) {
      const text = `${word.repeat(100_000)}!`;
      expect(redactText(text)).toBe(text);
      expect(redactObject([`--${text}`, 'a'])).toEqual([`--${text}`, 'a']);
    }
  }, 20_000);

  it('keeps fields that only sound like secrets', () => {
    const env = [
      { name: 'NODE_NAME', value: 'n' },
      { name: 'DB_PWD', valueFrom: { secretKeyRef: { name: 'db', key: 'pwd' } } },
    ];
    const imagePullSecrets = [{ name: 'registry' }];
    const value = { secretRefs: ['a'], env, imagePullSecrets, automountServiceAccountToken: false, uid: 'u-1' };
    expect(redactObject(value)).toEqual(value);
  });

  it.each<[string, unknown, unknown]>([
    ['a list', { tokens: ['a', 'b'] }, { tokens: [removed, removed] }],
    ['an object', { secretKey: { x: 'y', z: [1, true] } }, { secretKey: { x: removed, z: [removed, true] } }],
    ['the argument after a flag', { args: ['--token', 'abc', '-v'] }, { args: ['--token', removed, '-v'] }],
    ['a variable', [{ name: 'DB_PWD', value: 'x' }], [{ name: 'DB_PWD', value: removed }]],
    [
      'JSON within a string',
      { 'kubectl.kubernetes.io/last-applied-configuration': '{"env":[{"name":"DB_PASSWORD","value":"x\\"y"}]}\n' },
      { 'kubectl.kubernetes.io/last-applied-configuration': `{"env":[{"name":"DB_PASSWORD","value":"${removed}"}]}` },
    ],
  ])('removes a secret from %s', (_, value, expected) => {
    expect(redactObject(value)).toEqual(expected);
  });

  it('removes values nested more than 64 levels deep', () => {
    const deep = JSON.parse(`{"password":"hunter2","config":${'['.repeat(5_000)}${']'.repeat(5_000)},"uid":"u-1"}`);
    const text = JSON.stringify(redactObject(deep));
    expect(text).toMatch(/^\{"password":"\[removed\]","config":\[{63}"\[removed\]"\]{63},"uid":"u-1"\}$/);
  });
});
