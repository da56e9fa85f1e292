import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { codePoint } from '../../doubles/code-point.ts';
import { runProgram, vf } from './container-root.ts';
import { nicDocument, nicFile, root, run, tool, useToolBench } from './tool-bench.ts';

useToolBench();

/** A file with what our own driver would not write. */
const writeDevice = (fields: object) => root.write(nicFile, JSON.stringify(nicDocument(fields)));

/** The variables that a shell has after `eval`. */
function evaluate(assignments: string, ...names: string[]): string[] {
  const script = `eval "$1"; shift; for name; do eval "printf '%s\\\\0' \\"\\$$name\\""; done`;
  const { stdout, stderr, exitCode } = runProgram('sh', ['-euc', script, 'sh', assignments, ...names]);
  expect({ stderr, exitCode }).toEqual({ stderr: '', exitCode: 0 });
  return stdout.split('\0').slice(0, -1);
}

describe('netdra-metadata env', () => {
  it('prints a variable for each attribute of each device', async () => {
    await root.prepare({ claim: 'fast-net', devices: [vf(1), vf(2, 'igbvf')] });
    const { stdout } = run('env');
    const names = ['PCI', 'INTERFACE', 'MAC', 'IPS', 'MTU', 'VLAN', 'NUMA_NODE', 'DRIVER', 'VFIO_DEVICE'];
    const first = ['0000:3b:02.1', 'net1', '02:00:00:00:00:01', '192.0.2.1/24 2001:db8::1/64', '1401', '101', '1'];
    expect(evaluate(stdout, ...names.map((name) => `NETDRA_FAST_NET_VF_${name}`))).toEqual([
      ...first,
      'vfio-pci',
      '/dev/vfio/41',
    ]);
    expect(evaluate(stdout, ...names.map((name) => `NETDRA_FAST_NET_VF_0_${name}`))).toEqual([
      ...first,
      'vfio-pci',
      '/dev/vfio/41',
    ]);
    expect(evaluate(stdout, 'NETDRA_FAST_NET_VF_1_PCI', 'NETDRA_FAST_NET_VF_1_DRIVER')).toEqual([
      '0000:3b:02.2',
      'igbvf',
    ]);
    expect(stdout).not.toContain('NETDRA_FAST_NET_VF_1_VFIO_DEVICE');
    expect(evaluate(stdout, 'NETDRA_FAST_NET_VF_COUNT', 'NETDRA_FAST_NET_VF_GENERATION', 'NETDRA_REQUESTS')).toEqual([
      '2',
      '1',
      'fast-net/vf',
    ]);
  });

  it('names the variables of a single request by the given prefix alone', async () => {
    await root.prepare({ claim: 'left', devices: [vf(1)] });
    await root.prepare({ claim: 'right', devices: [vf(2)] });
    expect(evaluate(run('env', 'right/vf', '--prefix', 'NET1').stdout, 'NET1_PCI', 'NET1_COUNT')).toEqual([
      '0000:3b:02.2',
      '1',
    ]);
    expect(evaluate(run('env', '--prefix', 'MY').stdout, 'MY_LEFT_VF_PCI', 'MY_REQUESTS')).toEqual([
      '0000:3b:02.1',
      'left/vf right/vf',
    ]);
  });

  it('rejects attributes whose variable names would be equal', async () => {
    await root.prepare({ claim: 'a-b', devices: [vf(1)] });
    await root.prepare({ claim: 'a.b', devices: [vf(2)] });
    expect(run('env')).toMatchObject({
      exitCode: 2,
      stdout: '',
      stderr: expect.stringContaining('NETDRA_A_B_VF_0_PCI'),
    });
    expect(run('env', 'a.b/vf').exitCode).toBe(0);
  });

  it('prints values that are safe to eval', () => {
    const text = fc.string({ unit: codePoint, minLength: 1, maxLength: 40 }).filter((each) => !each.includes('\0'));
    const nasty = fc.constantFrom(
      "'; touch /tmp/x; '",
      '$(id)',
      '`id`',
      "'\\''",
      '\n',
      '\\',
      '!!',
      "''",
      '"$HOME"',
      '-e',
    );
    fc.assert(
      fc.property(fc.oneof(text, nasty), (interfaceName) => {
        const wellFormed = interfaceName.toWellFormed();
        writeDevice({ networkData: { interfaceName: wellFormed } });
        expect(evaluate(run('env').stdout, 'NETDRA_NIC_VF_INTERFACE')).toEqual([wellFormed]);
      }),
      { numRuns: 50 },
    );
  });
});

describe('netdra-metadata eal-args', () => {
  it('omits kernel devices unless requested', async () => {
    await root.prepare({ claim: 'dpdk', devices: [vf(1)] });
    await root.prepare({ claim: 'kernel', devices: [vf(2, 'igbvf')] });
    expect(run('eal-args').stdout).toBe('-a 0000:3b:02.1\n');
    expect(run('eal-args', '--af-packet').stdout).toBe('-a 0000:3b:02.1 --vdev=net_af_packet0,iface=net2\n');
    expect(run('eal-args', 'kernel/vf', '--af-packet').stdout).toBe('--vdev=net_af_packet0,iface=net2 --no-pci\n');
    expect(run('eal-args', 'dpdk/vf', '--flag', '-w', '--devargs=a=1,b=[0-3]').exitCode).toBe(2);
    expect(run('eal-args', 'dpdk/vf', '--flag', '-w', '--devargs=a=1,b=2').stdout).toBe('-w 0000:3b:02.1,a=1,b=2\n');
    expect(run('eal-args', 'kernel/vf')).toMatchObject({
      exitCode: 1,
      stdout: '',
      stderr: expect.stringContaining('dev-0 of kernel/vf is bound to igbvf, which DPDK cannot use'),
    });
  });

  it('adds an lcore for each CPU of the container, numbered from 0', async () => {
    await root.prepare({ claim: 'dpdk', devices: [vf(1)] });
    const [, list = ''] = /^Cpus_allowed_list:\s*(.*)$/m.exec(readFileSync('/proc/self/status', 'utf8')) ?? [];
    const cpus = list.split(',').flatMap((range) => {
      const [first = 0, last = first] = range.split('-').map(Number);
      return Array.from({ length: last - first + 1 }, (_unused, index) => first + index);
    });
    const lcores = cpus.map((cpu, lcore) => `${lcore}@${cpu}`).join(',');
    expect(run('eal-args', '--lcores').stdout).toBe(`-a 0000:3b:02.1 --lcores=${lcores}\n`);
    const program = ['exec', '--lcores', '--', 'echo', '{eal-args}'];
    const pinned = runProgram('taskset', ['-c', `${cpus.at(-1)}`, tool, '--root', root.path, ...program]);
    expect(pinned.stdout).toBe(`-a 0000:3b:02.1 --lcores=0@${cpus.at(-1)}\n`);
  });

  it('derives --file-prefix from the first device, so that it is unique among containers', async () => {
    await root.prepare({ claim: 'dpdk', devices: [vf(1), vf(3)] });
    await root.prepare({ claim: 'kernel', devices: [vf(2, 'igbvf')] });
    expect(run('eal-args', '--file-prefix').stdout).toBe(
      '-a 0000:3b:02.1 -a 0000:3b:02.3 --file-prefix=0000:3b:02.1\n',
    );
    expect(run('eal-args', 'kernel/vf', '--af-packet', '--file-prefix').stdout).toBe(
      '--vdev=net_af_packet0,iface=net2 --no-pci --file-prefix=0000:3b:02.2\n',
    );
    expect(run('list', '--file-prefix').exitCode).toBe(2);
  });

  it.each(['mlx5_core', 'mlx5_vfio_pci', 'igb_uio', 'uio_pci_generic', 'mana'])(
    'includes a device bound to %s',
    async (driver) => {
      await root.prepare({ claim: 'dpdk', devices: [vf(1, driver)] });
      expect(run('eal-args').stdout).toBe('-a 0000:3b:02.1\n');
    },
  );

  it('fails if there is no device for DPDK, since DPDK takes every device when given none', async () => {
    await root.prepare({ claim: 'kernel', devices: [vf(1, 'iavf')] });
    expect(run('eal-args')).toMatchObject({
      exitCode: 1,
      stdout: '',
      stderr: expect.stringContaining('no device for DPDK'),
    });
  });

  it.each([
    ['00:02.1', 3],
    ['0000:3b:02.8', 3],
    ['0000:3b:2.1', 3],
    ['0000:3b:02.1 --vdev=x', 3],
    ['0000:3b:02.1\n', 3],
    ['', 3],
    ['10000:e1:00.0', 0],
    ['ABCD:3B:02.1', 0],
  ])('given the PCI address %j, exits with %d', (address, exitCode) => {
    writeDevice({ attributes: { 'resource.kubernetes.io/pciBusID': { string: address } } });
    const result = run('eal-args');
    expect(result).toMatchObject({ exitCode, stdout: exitCode === 0 ? `-a ${address}\n` : '' });
  });

  it.each([
    ['resource.k8s.io/pciBusID', 'the attribute name in the text of KEP-5304'],
    ['pciAddress', "the driver's own attribute name"],
    ['d.example/pciAddress', "the driver's own qualified attribute name"],
  ])('finds the address under %s: %s', (name) => {
    writeDevice({ attributes: { [name]: { string: '0000:3b:02.1' } } });
    expect(run('eal-args', 'nic/vf').stdout).toBe('-a 0000:3b:02.1\n');
  });

  it('reports a device without an address', () => {
    writeDevice({ attributes: { model: { string: 'x' } } });
    expect(run('eal-args', 'nic/vf')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('has no PCI address'),
    });
  });
});

describe('netdra-metadata with a hundred devices', () => {
  const devices = Array.from({ length: 100 }, (_unused, index) => ({
    attributes: { 'resource.kubernetes.io/pciBusID': { string: `0000:${(0x10 + index).toString(16)}:00.1` } },
    networkData: { interfaceName: `net${index}` },
  }));

  it('lists each device with its claim', async () => {
    for (const [index, each] of devices.entries()) {
      await root.prepare({ claim: `nic-${index}`, devices: [each], layouts: [index % 2 === 0 ? 'v1' : 'kep'] });
    }
    expect(run('list').stdout.trim().split('\n')).toHaveLength(101);
    expect(run('eal-args').stdout.trim().split(' ')).toHaveLength(200);
    expect(run('eal-args', 'nic-7/vf', 'nic-8/vf').stdout).toBe('-a 0000:18:00.1 -a 0000:17:00.1\n');
  });
});
