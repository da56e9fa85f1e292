import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, openSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { allLayouts, runProgram, vf } from './container-root.ts';
import { nicDocument, nicFile, root, run, tool, useToolBench } from './tool-bench.ts';

useToolBench();

const v1Dir = '/var/run/kubernetes.io/dra-device-attributes';
const kepDir = '/var/run/dra-device-attributes';

/** What the tool prints when all is well. */
const output = (...args: string[]) => {
  const { exitCode, stdout, stderr } = run(...args);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
  return stdout;
};
const lines = (text: string) => text.split('\n').filter((line) => line !== '');
/** A file of the merged KEP's form. */
const document = (fields: object = {}, version = 'v1beta1') =>
  JSON.stringify({ ...nicDocument({ name: version }, version), ...fields });
const device = (fields: object) => ({
  requests: [{ name: 'vf', devices: [{ driver: 'd', pool: 'p', name: 'n', ...fields }] }],
});

describe('netdra-metadata with every layout', () => {
  it.each(allLayouts)('with the layout %s, lists the devices and supports every command', async (layout) => {
    await root.prepare({ claim: 'nic', devices: [vf(1), vf(2)], layouts: [layout] });
    const columns = lines(output('--layout', layout, 'list', '--no-headers')).map((line) => line.split('\t'));
    const networkData = (index: number) =>
      layout === 'attributes-json'
        ? ['-', '-', '-']
        : [`net${index}`, `02:00:00:00:00:0${index}`, `192.0.2.${index}/24,2001:db8::${index}/64`];
    const identity = (index: number) =>
      layout === 'attributes-json' ? ['-', '-', '-'] : ['sriov.netdra.dev', 'node-1', `dev-${index - 1}`];
    const generation = layout === 'v1' || layout === 'kep' ? '1' : '0';
    expect(columns).toEqual(
      [1, 2].map((index) => ['nic/vf', generation, ...identity(index), `0000:3b:02.${index}`, ...networkData(index)]),
    );
    const ealArgs = '-a 0000:3b:02.1 -a 0000:3b:02.2\n';
    expect(output('--layout', layout, 'eal-args', 'nic/vf')).toBe(ealArgs);
    expect(output('--layout', layout, 'exec', 'nic/vf', '--', 'echo', '{eal-args}')).toBe(ealArgs);
    for (const command of [['get', 'nic/vf'], ['env']])
      expect(output('--layout', layout, ...command)).toContain(':02.2');
    expect(output('--layout', layout, 'wait', '--timeout', '0')).toBe('');
  });

  it.each(allLayouts)('recognizes the layout %s by the content of a file given by --path', async (layout) => {
    await root.prepare({ claim: 'nic', devices: [vf(1)], layouts: [layout] });
    const [file = ''] = root.files();
    const { stdout, exitCode } = runProgram(tool, ['--path', join(root.path, file), 'eal-args', 'nic/vf']);
    expect({ stdout, exitCode }).toEqual({ stdout: '-a 0000:3b:02.1\n', exitCode: 0 });
  });

  it.each(['v1', 'kep', 'downward-api'] as const)(
    "%s: lists a template claim once, under the pod's name for it",
    async (layout) => {
      await root.prepare({ claim: 'a-nic-x7k2p', podClaimName: 'nic', devices: [vf(1)], layouts: [layout] });
      expect(lines(output('--layout', layout, 'list', '--no-headers'))).toEqual([expect.stringMatching(/^nic\/vf\t/)]);
      expect(output('--layout', layout, 'eal-args', 'nic/vf')).toBe('-a 0000:3b:02.1\n');
    },
  );

  it('reads a directory of any layout given by --path, and names missing files', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)], layouts: ['downward-api'] });
    await root.prepare({ claim: 'other', devices: [vf(2)], layouts: ['kep'] });
    const at = (path: string) => runProgram(tool, ['--path', join(root.path, path), 'eal-args']);
    expect(at('/etc/dra').stdout).toBe('-a 0000:3b:02.1\n');
    expect(at(kepDir).stdout).toBe('-a 0000:3b:02.2\n');
    expect(at('/nowhere')).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('/nowhere: No such file') });
  });

  it('reads v1 before kep by default, and lists each device once even if it is in both layouts', async () => {
    await root.prepare({ claim: 'a-nic-x7k2p', podClaimName: 'nic', devices: [vf(1)] });
    await root.prepare({ claim: 'fast-net', devices: [vf(2)], layouts: ['kep'] });
    expect(root.files().filter((path) => path.includes('nic'))).toHaveLength(3);
    expect(lines(output('list', '--no-headers')).map((line) => line.split('\t')[0])).toEqual(['nic/vf', 'fast-net/vf']);
    expect(output('get', 'nic/vf', '.apiVersion')).toBe('metadata.resource.k8s.io/v1beta1\n');
    expect(output('get', 'fast-net/vf', '.apiVersion')).toBe('metadata.resource.k8s.io/v1alpha1\n');
    // The generated name is a name, too: layout kep has the file under it.
    expect(output('eal-args', 'a-nic-x7k2p/vf')).toBe('-a 0000:3b:02.1\n');
  });

  it('distinguishes a claim from a template claim of the same name', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)], layouts: ['v1'] });
    await root.prepare({ claim: 'a-nic-x7k2p', podClaimName: 'nic', devices: [vf(2)], layouts: ['v1'] });
    expect(run('eal-args', 'nic/vf')).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining('say resourceclaims/nic/vf or resourceclaimtemplates/nic/vf'),
    });
    expect(output('eal-args', 'resourceclaims/nic/vf')).toBe('-a 0000:3b:02.1\n');
    expect(output('eal-args', 'resourceclaimtemplates/nic/vf')).toBe('-a 0000:3b:02.2\n');
    expect(lines(output('list', '--no-headers')).map((line) => line.split('\t')[0])).toEqual([
      'resourceclaims/nic/vf',
      'resourceclaimtemplates/nic/vf',
    ]);
  });
});

describe('netdra-metadata with an extended resource', () => {
  const claim = 'app-extended-resources-x7k2p';
  const request = 'container-0-request-0';

  it('finds its files by resource name, whatever names the scheduler gave to claim and request', async () => {
    await root.prepare({ claim, request, extendedResources: ['intel.com/sriov'], devices: [vf(1), vf(2)] });
    await root.prepare({ claim: 'other', devices: [vf(3)] });
    expect(output('eal-args', 'intel.com/sriov')).toBe('-a 0000:3b:02.1 -a 0000:3b:02.2\n');
    expect(output('env', 'intel.com/sriov', '--prefix', 'NIC')).toContain("NIC_COUNT='2'\n");
    expect(output('get', 'extended-resources/intel.com/sriov', '.requests[0].name')).toBe(`${request}\n`);
    // One request, with a line for each of its devices.
    expect(lines(output('list', '--no-headers')).map((line) => line.split('\t')[0])).toEqual([
      `${claim}/${request}`,
      `${claim}/${request}`,
      'other/vf',
    ]);
    expect(run('eal-args', 'intel.com/other')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('intel.com/sriov'),
    });
  });

  it('does not mistake the resource name for the name of a claim', async () => {
    await root.prepare({ claim, request, extendedResources: ['intel.com/vf'], devices: [vf(1)], layouts: ['v1'] });
    await root.prepare({ claim: 'intel.com', devices: [vf(2)], layouts: ['v1'] });
    expect(run('eal-args', 'intel.com/vf')).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining('say resourceclaims/intel.com/vf or extended-resources/intel.com/vf'),
    });
    expect(output('eal-args', 'extended-resources/intel.com/vf')).toBe('-a 0000:3b:02.1\n');
  });
});

describe('netdra-metadata with several drivers', () => {
  it("merges the drivers' files of a request: all devices, and the lowest generation", async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)], driver: 'b.example' });
    const update = await root.prepare({ claim: 'nic', devices: [vf(2)], driver: 'a.example' });
    await update([vf(3)]);
    const merged = JSON.parse(output('get', 'nic/vf'));
    expect(merged).toMatchObject({ kind: 'DeviceMetadata', metadata: { name: 'nic', uid: 'uid-nic', generation: 1 } });
    expect(merged.requests).toHaveLength(1);
    const drivers = merged.requests[0].devices.map((each: { driver: string }) => each.driver);
    expect(drivers).toEqual(['a.example', 'b.example']);
    expect(output('eal-args')).toBe('-a 0000:3b:02.3 -a 0000:3b:02.1\n');
    expect(run('wait', '--generation', '2', '--timeout', '0').exitCode).toBe(4);
  });

  it('merges the files of one driver with layout kep and another with layouts v1 and kep', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)], driver: 'a.example' });
    await root.prepare({ claim: 'nic', devices: [vf(2)], driver: 'b.example', layouts: ['kep'] });
    expect(output('eal-args', 'nic/vf')).toBe('-a 0000:3b:02.1 -a 0000:3b:02.2\n');
  });
});

describe('netdra-metadata with several document versions', () => {
  it.each([
    ['newest first', [document(), document({}, 'v1alpha1')], 'v1beta1'],
    [
      'an unknown version before a known one',
      [document({ kind: 'DeviceList' }, 'v9'), document({}, 'v1alpha1')],
      'v1alpha1',
    ],
    ['garbage after a known version', [document(), '{"cut off'], 'v1beta1'],
  ])('picks the first known version: %s', (_what, objects, expected) => {
    root.write(nicFile, objects.join('\n'));
    expect(output('get', 'nic/vf', '.requests[0].devices[0].name')).toBe(`${expected}\n`);
  });

  it('takes the claim from the path if the document has no metadata', () => {
    root.write(nicFile, document({ metadata: {} }));
    expect(output('get', 'nic/vf', '.requests[0].devices[0].name')).toBe('v1beta1\n');
  });

  it('lists the versions of a document if all are unknown', () => {
    root.write(nicFile, document({}, 'v2') + document({}, 'v3'));
    expect(run('list')).toMatchObject({
      exitCode: 3,
      stderr: `netdra-metadata: ${root.path}${nicFile} has no version that is known here (unknown: metadata.resource.k8s.io/v2 DeviceMetadata, metadata.resource.k8s.io/v3 DeviceMetadata)\n`,
    });
  });
});

describe('netdra-metadata with a file that is not written yet', () => {
  const other = nicFile.replace('d.example', 'other.example');

  it.each([
    ['empty', ''],
    ['blank, like a withdrawn file', ' \n\t '.repeat(100)],
  ])('%s: reports no metadata, and prints no partial list of devices', (_what, content) => {
    root.write(nicFile, document());
    root.write(other, content);
    const stderr = `netdra-metadata: ${root.path}${other} is empty: its driver has not written it yet, or has withdrawn it\n`;
    for (const command of ['env', 'get', 'eal-args']) {
      expect(run(command, 'nic/vf')).toEqual({ exitCode: 1, stdout: '', stderr });
    }
    // What can be read is listed.
    expect(run('list', '--no-headers')).toMatchObject({
      exitCode: 1,
      stdout: expect.stringMatching(/^nic\/vf\t/),
      stderr,
    });
    expect(run('wait', '--timeout', '0.1')).toMatchObject({ exitCode: 4 });
    root.write(other, document());
    expect(run('wait', '--timeout', '5')).toMatchObject({ exitCode: 0 });
  });
});

describe('netdra-metadata with a malformed file', () => {
  const deep = `${'['.repeat(70)}${']'.repeat(70)}`;
  it.each<[string, string | Uint8Array, string]>([
    ['NUL bytes', '\0'.repeat(300), 'a value expected, but byte 0x00 at offset 0'],
    ['truncated', document().slice(0, -1), "',' or '}' expected, but the text ends at offset"],
    ['truncated within a string', document().slice(0, 12), 'the end of a string expected'],
    ['not JSON', 'pci=0000:3b:02.1', "a value expected, but 'p' at offset 0"],
    ['an array', '[]', 'an object without apiVersion and kind'],
    ['no API version', '{"kind":"DeviceMetadata"}', 'an object without apiVersion and kind'],
    ['another kind', document({ kind: 'DeviceList' }) + document(), 'kind DeviceMetadata expected, DeviceList found'],
    [
      'a fraction as generation',
      document({ metadata: { name: 'nic', generation: 1.5 } }),
      'metadata.generation: a whole number',
    ],
    ['a number for a name', document({ metadata: { name: 7 } }), 'metadata.name: a string expected, a number found'],
    ['an object for requests', document({ requests: {} }), 'requests: a list expected, an object found'],
    ['a number for a request', document({ requests: [7] }), 'name: a string in a request expected, nothing found'],
    [
      'a number for devices',
      document({ requests: [{ name: 'vf', devices: 1 }] }),
      'devices of a request: a list expected, a number',
    ],
    [
      'a string for a device',
      document({ requests: [{ name: 'vf', devices: ['x'] }] }),
      'objects expected, a string found',
    ],
    ['a list for attributes', document(device({ attributes: [] })), 'attributes: an object expected, a list found'],
    ['a number for an IP', document(device({ networkData: { ips: [1] } })), 'ips: strings expected, a number found'],
    [
      'a number for a MAC',
      document(device({ networkData: { hardwareAddress: 7 } })),
      'hardwareAddress: a string expected',
    ],
    ['a file of another request', document({ requests: [{ name: 'gpu' }] }), 'of request vf: it describes gpu'],
    ['not UTF-8', Buffer.from('{"kind":"\xff"}', 'latin1'), 'UTF-8 expected, but byte 0xff at offset 9'],
    ['overlong UTF-8', Buffer.from('{"kind":"\xc0\xaf"}', 'latin1'), 'UTF-8 expected'],
    ['a NUL in a string', '{"kind":"a\\u0000b"}', 'a string without \\u0000 expected'],
    ['a control character', '{"kind":"a\nb"}', 'no control character expected'],
    ['nested too deeply', `{"apiVersion":"x","kind":"y","z":${deep}}`, 'no deeper nesting expected'],
    ['too large', Buffer.alloc(5 << 20, ' '), 'larger than 4194304 bytes'],
  ])('names its path and the reason: %s', (_what, content, reason) => {
    const path = root.write(nicFile, content);
    const { exitCode, stderr, stdout } = run('get', 'nic/vf');
    expect(stderr).toContain(reason);
    expect(stderr.startsWith(`netdra-metadata: ${path} is no metadata`)).toBe(true);
    expect({ exitCode, stdout, count: lines(stderr).length }).toEqual({ exitCode: 3, stdout: '', count: 1 });
  });

  it('still lists all other files, but fails commands that need every file', async () => {
    await root.prepare({ claim: 'fast-net', devices: [vf(1)] });
    root.write(nicFile, '{');
    const listed = run('list', '--no-headers');
    expect(listed).toMatchObject({ exitCode: 3, stdout: expect.stringMatching(/^fast-net\/vf\t/) });
    expect(run('eal-args')).toMatchObject({ exitCode: 3, stdout: '' });
    expect(run('env')).toMatchObject({ exitCode: 3, stdout: '' });
    expect(output('eal-args', 'fast-net/vf')).toBe('-a 0000:3b:02.1\n');
  });

  it('reports a file that changes during each of 1,000 reads', () => {
    // The kernel makes another one for each read.
    const { exitCode, stderr } = runProgram(tool, ['--path', '/proc/sys/kernel/random/uuid', 'list']);
    expect({ exitCode, stderr }).toEqual({
      exitCode: 3,
      stderr: 'netdra-metadata: /proc/sys/kernel/random/uuid changed during each of 1000 reads\n',
    });
  });

  it("reports a directory as malformed, and a symlink loop with the system's error", () => {
    mkdirSync(join(root.path, nicFile), { recursive: true });
    expect(run('list')).toMatchObject({ exitCode: 3, stderr: expect.stringContaining('it is not a regular file') });
    const loop = join(root.path, `${v1Dir}/resourceclaims/loop/vf/d.example-metadata.json`);
    mkdirSync(dirname(loop), { recursive: true });
    symlinkSync(loop, loop);
    expect(run('get', 'loop/vf')).toMatchObject({ exitCode: 5, stderr: expect.stringContaining('cannot be opened') });
  });
});

describe('netdra-metadata get', () => {
  it.each([
    ['.requests[0].devices[0].networkData.interfaceName', 'net1\n'],
    ['$.requests[0].devices[0].networkData.ips[1]', '2001:db8::1/64\n'],
    [".requests[0].devices[0].attributes['resource.kubernetes.io/pciBusID'].string", '0000:3b:02.1\n'],
    ['["requests"][0]["name"]', 'vf\n'],
    ['.requests[*].devices[*].attributes.mtu.int', '1401\n1402\n'],
    ['.requests[0].devices[1].networkData.ips', '[\n  "192.0.2.2/24",\n  "2001:db8::2/64"\n]\n'],
    ['.metadata.generation', '1\n'],
  ])('%s', async (path, expected) => {
    await root.prepare({ claim: 'nic', devices: [vf(1), vf(2)] });
    expect(output('get', 'nic/vf', path)).toBe(expected);
  });

  it('prints the whole document if no path is given', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)], layouts: ['kep'] });
    const [file = ''] = root.files();
    expect(JSON.parse(output('get', 'nic/vf'))).toEqual(JSON.parse(readFileSync(join(root.path, file), 'utf8')));
    expect(output('get', 'nic/vf', '.')).toBe(output('get', 'nic/vf'));
  });

  it('preserves 64-bit integers', () => {
    root.write(
      nicFile,
      document(device({ attributes: { big: { int: 0 } } })).replace('"int":0', '"int":9223372036854775807'),
    );
    expect(output('get', 'nic/vf', '.requests[0].devices[0].attributes.big.int')).toBe('9223372036854775807\n');
  });

  it.each([
    ['x', 2],
    ['.a.', 2],
    ['.a[', 2],
    ['.a[-1]', 2],
    [".a['b]", 2],
    ['.a[99999999999999999999999]', 2],
    ['.requests[9]', 1],
    ['.requests.name', 1],
    ['.nothing', 1],
  ])('%s exits with %d', async (path, exitCode) => {
    await root.prepare({ claim: 'nic', devices: [vf(1)] });
    expect(run('get', 'nic/vf', path)).toMatchObject({ exitCode, stdout: '', stderr: expect.stringContaining(path) });
  });

  it('names the existing requests if the given request is missing', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)] });
    expect(run('get', 'nic/fv')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringMatching(/no metadata of nic\/fv in .* \(there is: nic\/vf\)/),
    });
  });

  it('finds the subrequest that the scheduler chose for firstAvailable', async () => {
    await root.prepare({ claim: 'nic', request: 'vf/large', devices: [vf(1)] });
    expect(output('get', 'nic/vf', '.requests[0].name')).toBe('vf/large\n');
    expect(output('get', 'nic/vf/large', '.requests[0].name')).toBe('vf/large\n');
    expect(run('get', 'nic/vf/small')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('of nic/vf/large'),
    });
  });
});

describe('netdra-metadata wait', () => {
  const spawnTool = (...args: string[]) => {
    const child = spawn(tool, ['--root', root.path, ...args], { stdio: 'inherit' });
    return once(child, 'exit').then(([code]) => code as number);
  };

  it('ends when a file appears, and when a generation is written in place', async () => {
    const first = spawnTool('wait', 'nic/vf', '--timeout', '60');
    const update = await root.prepare({ claim: 'nic', devices: [vf(1)] });
    expect(await first).toBe(0);
    const third = spawnTool('wait', 'nic/vf', '--generation', '3', '--timeout', '60');
    await update([vf(2)]);
    expect(run('wait', '--generation', '2', '--timeout', '0').exitCode).toBe(0);
    await update([vf(3)]);
    expect(await third).toBe(0);
  });

  it('names the missing metadata or generation at its timeout', async () => {
    expect(run('wait', 'nic/vf', '--timeout', '0.05')).toMatchObject({
      exitCode: 4,
      stderr: expect.stringMatching(/generation 1 not seen within 0\.050 s: no metadata of nic\/vf in /),
    });
    await root.prepare({ claim: 'nic', devices: [vf(1)] });
    expect(run('wait', '--generation=2')).toMatchObject({
      exitCode: 4,
      stderr: expect.stringContaining('nic/vf is at generation 1'),
    });
    root.write(`${v1Dir}/resourceclaims/bad/vf/d-metadata.json`, '{');
    expect(run('wait', '--timeout', '60').exitCode).toBe(3);
  });

  it('does not wait for generations in a layout without generations', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)], layouts: ['downward-api'] });
    expect(run('--layout', 'downward-api', 'wait', '--generation', '2', '--timeout', '60').exitCode).toBe(2);
  });
});

describe('netdra-metadata exec', () => {
  it('executes the program with the variables and the DPDK arguments', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)] });
    const script = 'echo "$NETDRA_NIC_VF_INTERFACE $*"; exit 7';
    const { stdout, exitCode } = run(
      'exec',
      '--devargs',
      'x=1',
      '--',
      'sh',
      '-c',
      script,
      'sh',
      '{eal-args}',
      '--',
      '-i',
    );
    expect({ stdout, exitCode }).toEqual({ stdout: 'net1 -a 0000:3b:02.1,x=1 -- -i\n', exitCode: 7 });
  });

  it('waits for metadata if --timeout or --generation is given, and prints why it does not start the program', async () => {
    expect(run('exec', 'nic/vf', '--timeout', '0', '--', 'true').exitCode).toBe(4);
    expect(run('exec', 'nic/vf', '--', 'true').exitCode).toBe(1);
    await root.prepare({ claim: 'nic', devices: [vf(1)] });
    expect(run('exec', 'nic/vf', '--generation', '1', '--', 'true').exitCode).toBe(0);
    expect(run('exec', '--', '/no/such/program')).toMatchObject({
      exitCode: 5,
      stderr: expect.stringContaining('/no/such/program cannot be started: No such file'),
    });
    expect(run('exec').exitCode).toBe(2);
  });
});

describe('netdra-metadata copy-to', () => {
  it('copies itself to a folder or to a path, and the copy runs', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)] });
    for (const [target, path] of [
      ['', 'netdra-metadata'],
      ['tool', 'tool'],
      ['tool', 'tool'],
    ] as const) {
      output('copy-to', join(root.path, target));
      const copy = join(root.path, path);
      expect(statSync(copy).mode & 0o777).toBe(0o755);
      expect(runProgram(copy, ['--root', root.path, 'eal-args']).stdout).toBe('-a 0000:3b:02.1\n');
    }
    expect(run('copy-to', join(root.path, 'no/such/folder')).exitCode).toBe(5);
  });

  it('replaces the partial copy that a killed container with the same process ID left', async () => {
    mkdirSync(root.path, { recursive: true });
    const target = join(root.path, 'again');
    const script = `: > ${target}.$$.tmp; exec "$0" copy-to ${target}`;
    expect(runProgram('/bin/sh', ['-c', script, tool]).exitCode).toBe(0);
    expect(statSync(target).mode & 0o777).toBe(0o755);
  });
});

describe('the command line of netdra-metadata', () => {
  it.each([
    [[], 2],
    [['unknown'], 2],
    [['list', 'nic/vf'], 2],
    [['list', '--prefix', 'X'], 2],
    [['get'], 2],
    [['get', 'nic'], 2],
    [['get', 'nic/'], 2],
    [['get', '../vf'], 2],
    [['env', '--prefix', 'A B'], 2],
    [['env', '--prefix'], 2],
    [['eal-args', '--devargs', 'a b'], 2],
    [['eal-args', '--devargs', '$(reboot)'], 2],
    [['eal-args', '--flag', 'w'], 2],
    [['wait', '--generation', '0'], 2],
    [['wait', '--timeout', '-1'], 2],
    [['wait', '--timeout', '1s'], 2],
    [['list', '--no-headers=1'], 2],
    [['list', '--', 'x'], 2],
    [['--layout', 'v2', 'list'], 2],
    [['--path', '/tmp', 'list'], 2],
    [['list', '--nonsense'], 2],
    [['list'], 1],
    [['env'], 1],
    [['--help'], 0],
    [['version'], 0],
  ])('%j exits with %d', (args, exitCode) => {
    const result = run(...args);
    expect(result.exitCode, result.stderr).toBe(exitCode);
    expect(result.stderr === '').toBe(exitCode === 0);
  });

  it('exits with an error if its output cannot be written', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)] });
    const child = spawn(tool, ['--root', root.path, 'env'], {
      stdio: ['ignore', openSync('/dev/full', 'w'), 'ignore'],
    });
    expect((await once(child, 'exit'))[0]).toBe(5);
  });
});
