import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadYaml } from '@kubernetes/client-node';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { buildConsumer } from '../../../programs/build.ts';
import { locateReaderTool } from '../../../programs/reader-tools.ts';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, generateClaim, testDriver } from '../../../test/doubles/objects.ts';
import { dialectConsumers } from '../../../test/integration/programs/dialect-consumers.ts';
import {
  allocateClaim,
  claimSpecsOf,
  containersOf,
  loadExample,
  podsOf,
} from '../../../test/integration/programs/example-manifests.ts';
import { Bench, ipLinks } from '../bench.ts';
import { encodeOciArchive } from '../oci-image.ts';
import { type ContainerSpec, exec, runContainer, type Sandbox, waitForExit } from '../pod.ts';
import { staticProgramsFolder } from '../tools.ts';

const examples = fileURLToPath(new URL('../../../examples', import.meta.url));
/** The tool and nothing else, as built by programs/Dockerfile. */
const toolImage = 'localhost/netdra/metadata-tool:1';

/** Mounts of the machine's jq, or of Debian's unpacked package with its dependencies: as if jq were in the image. */
function jqInContainers() {
  const jq = locateReaderTool('jq', cacheFolder(process.env), process.env);
  const files = jq.endsWith('/usr/bin/jq') || jq === '/bin/jq' ? '/' : join(dirname(jq), 'root');
  const mounts = ['usr', 'lib', 'lib64'].map((name) => ({
    hostPath: join(files, name),
    containerPath: `/${name}`,
    readonly: true,
  }));
  return { jq, mounts };
}

/** The `dialects` of the class in docs/dialects.md. The VFs here are simulated, without a driver for user space. */
function documentedDialects(): object {
  const page = readFileSync(fileURLToPath(new URL('../../../docs/dialects.md', import.meta.url)), 'utf8');
  const [, text = ''] = /^```yaml\n([\s\S]*?)^```$/m.exec(page) ?? [];
  const { spec } = loadYaml<{ spec: { config: { opaque: { parameters: { dialects: object } } }[] } }>(text);
  return spec.config[0]?.opaque.parameters.dialects ?? {};
}

describe('what is in the container', () => {
  let bench: Bench;
  let tool: string;
  const devices = () => {
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    return (slice?.spec.devices ?? []).map(({ name }) => name);
  };

  beforeAll(async () => {
    const cacheDir = cacheFolder(process.env);
    tool = buildConsumer({ outDir: staticProgramsFolder(cacheDir), cacheDir });
    bench = await Bench.start({ version: '2.1', logger: new RecordingLogger() });
    await bench.startDriver();
    await importToolImage();
    await vi.waitFor(() => expect(devices()).toHaveLength(8), { timeout: 10_000 });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await bench.endAllPods();
    expect(bench.claimFiles()).toEqual([]);
  });

  async function importToolImage(): Promise<void> {
    const program = readFileSync(tool);
    const files = [{ type: 'file' as const, path: 'netdra-metadata', mode: 0o755, data: program }];
    const archive = join(bench.dir, 'tool.tar');
    writeFileSync(archive, encodeOciArchive([{ name: toolImage, files, entrypoint: ['/netdra-metadata'] }]));
    await bench.containerd.ctr('images', 'import', '--local', '--no-unpack', archive);
    // The CRI side learns of it by an event.
    await vi.waitFor(
      async () => {
        const { image } = await bench.containerd.cri.call('ImageStatus', { image: { image: toolImage } });
        expect(image).not.toBeNull();
      },
      { timeout: 10_000 },
    );
  }

  /** The output of a pod's container until it ends. */
  async function output(sandbox: Sandbox, spec: ContainerSpec): Promise<{ lines: string[]; exitCode: number }> {
    const { cri } = bench.containerd;
    const exitCode = await waitForExit(cri, await runContainer(cri, sandbox, spec));
    const log = readFileSync(join(sandbox.config.logDirectory ?? '', `${spec.name}.log`), 'utf8');
    // Time, stream and tag precede the text: Kubernetes' log format.
    return {
      lines: log
        .trim()
        .split('\n')
        .map((line) => line.split(' ').slice(3).join(' ')),
      exitCode,
    };
  }

  it('runs examples/kernel-mode.yaml as it is, the tool from an image without anything else', async () => {
    const objects = loadExample('kernel-mode.yaml');
    const [example] = podsOf(objects);
    const containers = containersOf(example!);
    const pod = buildPod('kernel-mode', {
      resourceClaims: [{ name: 'nic', resourceClaimName: 'nic' }],
      containers: containers.map(({ name, resources }) => ({ name, claims: resources?.claims ?? [] })),
    });
    const spec = claimSpecsOf(objects, example!).get('nic');
    bench.api.create(allocateClaim('nic', spec!, devices().slice(0, 1), [pod]));
    const sandbox = await bench.startPod(pod);
    const shared = join(bench.dir, 'netdra');
    mkdirSync(shared);
    const mounts = [{ hostPath: shared, containerPath: '/netdra' }];
    const [init, app] = containers;
    // Its image has an entry point, so only the arguments are given; the runtime here takes one list.
    const install = await output(sandbox, {
      name: init!.name,
      image: toolImage,
      command: ['/netdra-metadata', ...(init?.args ?? [])],
      mounts,
    });
    expect(install.exitCode).toBe(0);
    const { lines, exitCode } = await output(sandbox, {
      name: app!.name,
      command: [...(app?.command ?? []), ...(app?.args ?? [])],
      cdiDevices: bench.kubelet.cdiDevicesForContainer(pod, app!.name),
      mounts,
    });
    const link = ipLinks(sandbox).find(({ ifname }) => ifname === 'net1');
    expect({ exitCode, line: lines[0] }).toEqual({
      exitCode: 0,
      line: `interface net1 with 192.0.2.10/24 2001:db8::10/64, MTU 1400, MAC ${link?.address}`,
    });
    expect(lines.slice(1).join('\n')).toContain('192.0.2.10/24');
  });

  it('answers every command of the tool in a running container, and sees a change', async () => {
    const [a = '', b = ''] = devices();
    const pod = buildPod('tool', { resourceClaims: [{ name: 'nic', resourceClaimTemplateName: 'nics' }] });
    bench.api.create(pod);
    const parameters = (index: number) => ({
      apiVersion: 'netdra.dev/v1alpha1',
      kind: 'VFConfig',
      interfaceName: `net${index}`,
      addresses: [`192.0.2.${index}/24`],
    });
    const claim = generateClaim(pod, 'nic', {
      requests: [
        { name: 'left', devices: [a] },
        { name: 'right', devices: [b] },
      ],
      config: ['left', 'right'].map((request, index) => ({
        source: 'FromClaim' as const,
        requests: [request],
        parameters: parameters(index + 1),
      })),
    });
    bench.api.create(claim);
    const sandbox = await bench.startPod(pod);
    const { cri } = bench.containerd;
    const id = await runContainer(cri, sandbox, {
      name: 'main',
      cdiDevices: bench.kubelet.cdiDevicesForContainer(pod, 'main'),
      mounts: [{ hostPath: dirname(tool), containerPath: '/netdra', readonly: true }],
    });
    const run = async (...args: string[]) => {
      const { stdout, stderr, exitCode } = await exec(cri, id, ['/netdra/netdra-metadata', ...args]);
      return { stdout, stderr, exitCode };
    };
    const mac = (name: string) => ipLinks(sandbox).find(({ ifname }) => ifname === name)?.address;

    const listed = (await run('list', '--no-headers')).stdout.trim().split('\n');
    expect(listed.map((line) => line.split('\t'))).toEqual([
      ['nic/left', '1', testDriver, expect.any(String), a, expect.any(String), 'net1', mac('net1'), '192.0.2.1/24'],
      ['nic/right', '1', testDriver, expect.any(String), b, expect.any(String), 'net2', mac('net2'), '192.0.2.2/24'],
    ]);
    const ip = await run('get', 'nic/right', '.requests[0].devices[0].networkData.ips[0]');
    expect(ip).toEqual({ stdout: '192.0.2.2/24\n', stderr: '', exitCode: 0 });
    const byGeneratedName = await run('get', `${claim.metadata.name}/left`, '.metadata.name');
    expect(byGeneratedName.stdout).toBe(`${claim.metadata.name}\n`);
    // Simulated VFs belong to the kernel.
    expect(await run('eal-args')).toMatchObject({ exitCode: 1, stdout: '' });
    expect((await run('eal-args', '--af-packet')).stdout).toBe(
      '--vdev=net_af_packet0,iface=net1 --vdev=net_af_packet1,iface=net2 --no-pci\n',
    );
    const replaced = await run(
      'exec',
      '--af-packet',
      '--',
      'sh',
      '-c',
      'echo $NETDRA_NIC_LEFT_IPS "$@"',
      'sh',
      '{eal-args}',
    );
    expect(replaced.stdout).toMatch(/^192\.0\.2\.1\/24 --vdev=net_af_packet0,iface=net1 /);

    const waiting = run('wait', 'nic/left', '--generation', '2', '--timeout', '20');
    execFileSync('nsenter', [`--net=${sandbox.netnsPath}`, 'ip', 'addr', 'add', '198.51.100.7/24', 'dev', 'net1']);
    expect(await waiting).toEqual({ stdout: '', stderr: '', exitCode: 0 });
    expect((await run('env', 'nic/left', '--prefix', 'N')).stdout).toContain("N_IPS='192.0.2.1/24 198.51.100.7/24'\n");
    expect(await run('wait', 'nic/right', '--generation', '2', '--timeout', '0.2')).toMatchObject({ exitCode: 4 });
  });

  it('has for unmodified programs what the class of docs/dialects.md says, while the claim is prepared', async () => {
    const pod = buildPod('legacy', {
      resourceClaims: ['a', 'b'].map((name) => ({ name, resourceClaimName: name })),
    });
    const [one = '', two = '', three = ''] = devices();
    const classes = [documentedDialects(), { sriovNetwork: {} }];
    for (const [index, names] of [[one, two], [three]].entries()) {
      const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', dialects: classes[index] };
      const config = [{ source: 'FromClass' as const, parameters }];
      const requests = [{ name: 'vf', devices: names }];
      bench.api.create(buildClaim(['a', 'b'][index] ?? '', { requests, config, pods: [pod] }));
    }
    const sandbox = await bench.startPod(pod);
    const pciOf = (name: string) => name.replace(/^(\w{4})-(\w\w)-(\w\w)-(\d)$/, '$1:$2:$3.$4');
    const pci = [one, two, three].map(pciOf);
    const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, 'main');
    const { jq, mounts } = jqInContainers();
    const seen = async (consumer: keyof typeof dialectConsumers) => {
      const command = ['sh', '-euc', dialectConsumers[consumer]];
      const env = { PATH: '/bin:/usr/bin' };
      return (await output(sandbox, { name: consumer.toLowerCase(), command, env, cdiDevices, mounts })).lines;
    };
    expect(await seen('devicePlugin')).toEqual([`-a ${pci[0]}`, `-a ${pci[1]}`]);
    expect(await seen('sriovNetwork')).toEqual([...pci, `pod ${pci.join(' ')}`]);
    expect((await seen('appNetutil')).slice(0, 2)).toEqual(pci.slice(0, 2));
    const env = {
      PATH: `${dirname(jq)}:${process.env.PATH}`,
      root: bench.settings.deviceInfoDir,
      resource: 'intel.com/sriov_dpdk',
      id: pci[1],
    };
    const found = execFileSync('sh', ['-euc', dialectConsumers.multus], { env, encoding: 'utf8' });
    expect(found.trim()).toMatch(new RegExp(`^pci 1\\.1\\.0 ${pci[1]} [0-9a-f]{4}:[0-9a-f:.]{7}$`));
    // The check after each case verifies that nothing is left of it.
  });

  it('is read by the shell example with jq, on the paths and fields of the KEP', async () => {
    const pod = buildPod('shell', { resourceClaims: [{ name: 'nic', resourceClaimName: 'fast-net' }] });
    const parameters = {
      apiVersion: 'netdra.dev/v1alpha1',
      kind: 'VFConfig',
      interfaceName: 'net1',
      addresses: ['192.0.2.9/24'],
    };
    const config = [{ source: 'FromClaim' as const, parameters }];
    const requests = [{ name: 'vf', devices: devices().slice(0, 1) }];
    bench.api.create(buildClaim('fast-net', { requests, config, pods: [pod] }));
    const sandbox = await bench.startPod(pod);
    const mounts = [...jqInContainers().mounts, { hostPath: examples, containerPath: '/examples', readonly: true }];
    const { lines, exitCode } = await output(sandbox, {
      name: 'main',
      command: ['/examples/consumers/read-metadata.sh', 'fast-net', 'vf'],
      env: { PATH: '/bin:/usr/bin' },
      cdiDevices: bench.kubelet.cdiDevicesForContainer(pod, 'main'),
      mounts,
    });
    const link = ipLinks(sandbox).find(({ ifname }) => ifname === 'net1');
    expect({ exitCode, lines }).toEqual({
      exitCode: 0,
      lines: [expect.stringMatching(new RegExp(`^[0-9a-f]{4}:\\S+ net1 ${link?.address} 192\\.0\\.2\\.9/24$`))],
    });
  });
});
