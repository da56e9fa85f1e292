import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ClaimView } from '../../../src/app/tools/claims.ts';
import type { Finding } from '../../../src/app/tools/finding.ts';
import type { InventoryView } from '../../../src/app/tools/inventory.ts';
import type { KubeEvent } from '../../../src/driver/events/index.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod } from '../../../test/doubles/objects.ts';
import { Bench } from '../bench.ts';
import { type Containerd, startContainerd } from '../containerd.ts';
import { containerdSeries } from '../tools.ts';

const mainPath = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));

/** The command as operators run it. It runs beside the driver in this process, so nothing here may block. */
function netdra(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [mainPath, ...args], (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    );
  });
}

async function doctor(...args: string[]) {
  const { code, stdout, stderr } = await netdra('doctor', '-o', 'json', ...args);
  expect(stderr).toBe('');
  const findings: Finding[] = JSON.parse(stdout);
  return { code, find: (check: string) => findings.find((finding) => finding.check === check), findings };
}

describe.each(containerdSeries)('the tools beside a driver on containerd %s', (version) => {
  let bench: Bench;
  let dirs: string[];

  beforeAll(async () => {
    bench = await Bench.start({ version, logger: new RecordingLogger(), requestTimeoutMs: 2_000 });
    await bench.startDriver();
    dirs = [`--kubelet-plugins-dir=${bench.settings.kubeletPluginsDir}`];
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });

  const device = () => {
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    return slice?.spec.devices[0]?.name ?? '';
  };

  it('finds nothing that keeps the driver from its work, with NRI and CDI on', async () => {
    const { settings, containerd } = bench;
    const { code, find, findings } = await doctor(
      ...dirs,
      `--kubelet-registry-dir=${settings.kubeletRegistryDir}`,
      `--cdi-dir=${settings.cdiDir}`,
      `--nri-socket=${settings.nriSocket}`,
      `--cri-socket=${containerd.socketPath}`,
      `--kubeconfig=${settings.kubeconfig}`,
      '--simulate=8',
    );
    expect(findings.filter(({ level }) => level === 'problem')).toEqual([]);
    expect(code).toBe(0);
    expect(find('runtime')).toMatchObject({
      // Version 2.1 keeps a record of every refused sandbox.
      level: version === '1.7' ? 'ok' : 'warning',
      message: expect.stringContaining(`containerd ${version}`),
    });
    expect(find('NRI')).toMatchObject({ level: 'ok', message: `answers at ${settings.nriSocket}; 2 s for each event` });
    expect(find('CDI')).toMatchObject({ level: 'ok', message: `on, ${settings.cdiDir} is scanned` });
    expect(find('API server')).toMatchObject({ level: 'ok' });
    expect(find('permissions')).toMatchObject({ level: 'ok' });
    const elsewhere = await doctor(`--cri-socket=${containerd.socketPath}`, `--cdi-dir=${bench.dir}`);
    expect(elsewhere.find('CDI')).toMatchObject({ level: 'problem', message: expect.stringContaining('and not at') });
    // The driver is still connected.
    expect(await netdra('claims', ...dirs)).toEqual({ code: 0, stdout: 'no claims are prepared\n', stderr: '' });
  });

  it('shows devices, claims and metadata as they are, whether the driver runs or not', async () => {
    const name = device();
    const pod = buildPod('shown', { resourceClaims: [{ name: 'nic', resourceClaimName: 'shown' }] });
    const parameters = {
      ...{ apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' },
      ...{ interfaceName: 'net1', addresses: ['192.0.2.10/24'] },
    };
    const config = [{ source: 'FromClaim' as const, parameters }];
    bench.api.create(buildClaim('shown', { requests: [{ name: 'vf', devices: [name] }], config, pods: [pod] }));
    await bench.prepare(pod);
    const claims = async (): Promise<ClaimView[]> => JSON.parse((await netdra('claims', '-o', 'json', ...dirs)).stdout);
    expect(await claims()).toMatchObject([
      {
        name: 'shown',
        state: 'prepared',
        devices: [{ place: { in: 'host', interfaceName: 'nsim0v0' }, generation: 0 }],
      },
    ]);
    const sandbox = await bench.runSandbox(pod);
    // On a busy machine the hook answers before all of its work is done.
    await expect.poll(claims, { timeout: 60_000 }).toMatchObject([{ devices: [{ generation: 1 }] }]);
    const check = async () => {
      const place = { in: 'pod', interfaceName: 'net1', netnsPath: sandbox.netnsPath, pod: 'default/shown' };
      expect(await claims()).toMatchObject([
        { devices: [{ device: name, place, ips: ['192.0.2.10/24'], generation: 1 }] },
      ]);
      const table = await netdra('claims', ...dirs);
      expect(table.stdout).toMatch(
        /default\/shown +prepared +vf +\S+ +pod default\/shown +net1 +192\.0\.2\.10\/24 +1\n/,
      );
      const { stdout } = await netdra('inventory', '--simulate=8', '-o', 'json', ...dirs);
      const view: InventoryView = JSON.parse(stdout);
      expect(view.devices).toHaveLength(8);
      expect(view.devices.find((each) => each.name === name)).toMatchObject({ claim: 'default/shown' });
      const metadata = await netdra('metadata', 'default/shown', ...dirs);
      expect(metadata).toMatchObject({ code: 0, stderr: '' });
      expect(metadata.stdout).toMatch(/request vf: generation 1\n {2}v1: as it should be .*\n {2}kep: as it should be/);
      expect(metadata.stdout).toContain('      addresses  192.0.2.10/24\n');
    };
    await check();
    await bench.stopDriver();
    await check();
    await bench.startDriver();
    await bench.endPod(pod);
    expect(await claims()).toEqual([]);
  });

  it('tells a pod and its claim in events why they cannot have a device', async () => {
    const pod = buildPod('on-host', { resourceClaims: [{ name: 'nic', resourceClaimName: 'on-host' }] });
    bench.api.create(buildClaim('on-host', { requests: [{ name: 'vf', devices: [device()] }], pods: [pod] }));
    await bench.startPod(pod, { hostNetwork: true });
    const events = () =>
      bench.api
        .objects<KubeEvent>('Event')
        .map(({ regarding: { kind, name, uid }, reason, note }) => ({ kind, name, uid, reason, note }));
    const note =
      "Devices of claim default/on-host are not attached yet, retrying: pod default/on-host uses the host's network, where it cannot have a VF of its own (remove hostNetwork from the pod, or the claim)";
    await expect
      .poll(events, { timeout: 10_000 })
      .toEqual(
        expect.arrayContaining([
          { kind: 'Pod', name: 'on-host', uid: pod.metadata.uid, reason: 'DeviceNotAttached', note },
          expect.objectContaining({ kind: 'ResourceClaim', name: 'on-host', reason: 'DeviceNotAttached', note }),
        ]),
      );
    await bench.endPod(pod);
  });
});

describe.each([
  ['1.7', 'as it comes, with both off', /^(disable|enable_cdi) = .*$/gm],
  ['2.1', 'with both switched off', undefined],
] as const)('netdra doctor on containerd %s, %s', (version, _, defaults) => {
  let containerd: Containerd;
  let dir: string;

  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'netdra-doctor-'));
    const containerdDir = join(dir, 'containerd');
    mkdirSync(containerdDir);
    containerd = await startContainerd({ version, dir: containerdDir });
    await containerd.stop();
    const path = join(containerdDir, 'config.toml');
    const config = readFileSync(path, 'utf8');
    const off = config.replace('disable = false', 'disable = true').replace('enable_cdi = true', 'enable_cdi = false');
    writeFileSync(path, defaults === undefined ? off : config.replace(defaults, ''));
    rmSync(containerd.nriSocketPath, { force: true });
    await containerd.start();
  });
  afterAll(async () => {
    await containerd?.[Symbol.asyncDispose]();
    rmSync(dir, { recursive: true, force: true });
  });

  it('says that NRI and CDI are off, and where to switch them on', async () => {
    const { code, find } = await doctor(
      `--nri-socket=${containerd.nriSocketPath}`,
      `--cri-socket=${containerd.socketPath}`,
    );
    expect(code).toBe(1);
    expect(find('NRI')).toEqual({
      ...{ check: 'NRI', level: 'problem' },
      message: `off: there is no socket ${containerd.nriSocketPath}`,
      fix: expect.stringContaining('set disable = false in [plugins."io.containerd.nri.v1.nri"]'),
    });
    const section = version === '1.7' ? 'io.containerd.grpc.v1.cri' : 'io.containerd.cri.v1.runtime';
    expect(find('CDI')).toEqual({
      ...{ check: 'CDI', level: 'problem', message: 'off: containers get neither their metadata nor /dev/vfio' },
      fix: expect.stringContaining(`enable_cdi = true in [plugins."${section}"]`),
    });
  });
});
