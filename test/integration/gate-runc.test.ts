import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { locateTools, staticProgramsFolder } from '../../e2e/node/tools.ts';
import { buildGate } from '../../programs/build.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { isStaticProgram } from '../../scripts/packages/elf.ts';
import { installGate } from '../../src/framework/metadata/gate/index.ts';
import { ClaimMetadata, type ContainerEdits, decodeStream, layouts } from '../../src/framework/metadata/index.ts';
import { tempDir } from '../doubles/temp-dir.ts';
import { buildTimeoutMs } from './programs/checked-tool.ts';

const driver = 'sriov.netdra.dev';
const claim = { namespace: 'default', name: 'fast-net', uid: 'claim-uid' };
const record = { claim, requests: { vf: { name: 'vf', devices: [{ pool: 'node-1', name: 'dev-1' }] } } };
const devices = [{ driver, pool: 'node-1', name: 'dev-1', networkData: { ips: ['192.0.2.1/24'] } }];
const sandbox = 'a'.repeat(64);
/** Of the file in the container: its inode, and what it says. */
const look = `stat -c %i $FILE; cat $FILE`;

/** The program as it is shipped, called by a real runtime. */
describe('runc with the hook of a claim', () => {
  const { runc, busybox } = locateTools();
  const cacheDir = cacheFolder(process.env);
  let gate: string;
  let dir: ReturnType<typeof tempDir>;
  let dataDir: string;
  let metadata: ClaimMetadata;
  let count = 0;
  let id: string;

  beforeAll(() => {
    gate = buildGate({ outDir: staticProgramsFolder(cacheDir), cacheDir });
  }, buildTimeoutMs);
  beforeEach(async () => {
    dir = tempDir();
    dataDir = join(dir.path, 'plugins', driver);
    id = `gate-${process.pid}-${++count}`;
    await prepare(30);
  });
  afterEach(() => {
    spawnSync(runc, ['--root', join(dir.path, 'runc'), 'delete', '--force', id]);
    dir[Symbol.dispose]();
  });

  async function prepare(timeoutSeconds: number): Promise<void> {
    const program = await installGate({ from: gate, dataDir });
    metadata = new ClaimMetadata({
      driver,
      dataDir,
      cdiDir: join(dir.path, 'cdi'),
      layouts: [layouts.v1],
      gate: { program, timeoutSeconds },
    });
    await metadata.prepare(record, new Map());
  }
  async function serve(sandboxId = sandbox): Promise<void> {
    await metadata.update(claim, 'vf', devices);
    await metadata.openGate(claim, sandboxId);
  }

  /** What the runtime above makes of the CDI spec. */
  function makeBundle(edits: ContainerEdits): void {
    const rootfs = join(dir.path, 'bundle/rootfs');
    for (const path of ['bin', 'dev', 'proc']) mkdirSync(join(rootfs, path), { recursive: true });
    copyFileSync(busybox, join(rootfs, 'bin/busybox'));
    const [{ containerPath } = { containerPath: '/dev/null' }] = edits.mounts ?? [];
    const namespaces = ['mount', 'pid', 'ipc', 'uts', 'network'].map((type) => ({ type }));
    const config = {
      ociVersion: '1.0.2',
      root: { path: 'rootfs', readonly: false },
      process: {
        cwd: '/',
        user: { uid: 0, gid: 0 },
        args: ['/bin/busybox', 'sh', '-c', look.replaceAll(/\b(stat|cat)\b/g, '/bin/busybox $1')],
        env: [`FILE=${containerPath}`],
      },
      mounts: [
        { destination: '/proc', type: 'proc', source: 'proc' },
        { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755'] },
        ...(edits.mounts ?? []).map(({ hostPath, containerPath, options }) => ({
          destination: containerPath,
          source: hostPath,
          type: 'bind',
          options,
        })),
      ],
      hooks: { createRuntime: edits.hooks?.map(({ hookName: _, ...hook }) => hook) },
      annotations: { 'io.kubernetes.cri.sandbox-id': sandbox, 'io.kubernetes.cri.container-type': 'container' },
      linux: { namespaces, cgroupsPath: `${process.env.NETDRA_CGROUP_PARENT ?? ''}/${id}` },
    };
    writeFileSync(join(dir.path, 'bundle/config.json'), JSON.stringify(config));
  }

  function start(): { child: ChildProcess; outcome: Promise<{ code: number | null; stdout: string; stderr: string }> } {
    const [spec = ''] = readdirSync(join(dir.path, 'cdi'));
    makeBundle(JSON.parse(readFileSync(join(dir.path, 'cdi', spec), 'utf8')).devices[0].containerEdits);
    const args = ['--root', join(dir.path, 'runc'), 'run', '--bundle', join(dir.path, 'bundle'), id];
    const child = spawn(runc, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const outcome = Promise.all([once(child, 'close'), text(child.stdout), text(child.stderr)]).then(
      ([[code], stdout, stderr]) => ({ code: code as number | null, stdout, stderr }),
    );
    return { child, outcome };
  }

  /** Processes of the hook for this claim. */
  function hooks(): number[] {
    return readdirSync('/proc').flatMap((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith(join(dataDir, 'bin/netdra-gate'))
          ? [Number(pid)]
          : [];
      } catch {
        return [];
      }
    });
  }
  const untilHookRuns = () => vi.waitFor(() => expect(hooks()).toHaveLength(1), 10_000);
  const file = () => join(dataDir, 'dra-device-metadata/default_fast-net/vf/metadata.json');

  it('is one small program that needs nothing', () => {
    expect(isStaticProgram(gate)).toBe(true);
    expect(statSync(gate).size).toBeLessThan(200_000);
  });

  it('keeps a container waiting, which then reads what was written meanwhile into the file that it has mounted', async () => {
    const { outcome } = start();
    await untilHookRuns();
    expect(readFileSync(file(), 'utf8')).toBe('');
    await sleep(500);
    await serve();
    const { code, stdout, stderr } = await outcome;
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const [inode, ...lines] = stdout.split('\n');
    expect(Number(inode)).toBe(statSync(file()).ino);
    expect(decodeStream(lines.join('\n'))).toMatchObject({ generation: 1, devices });
  });

  it('lets a container of a served sandbox start at once, with nobody there to ask', async () => {
    await serve();
    const { code, stdout } = await start().outcome;
    expect(code).toBe(0);
    expect(stdout).toContain('192.0.2.1/24');
  });

  it('refuses a container of another sandbox than the served one, with the reason in what runc says', async () => {
    await prepare(1);
    await serve('b'.repeat(64));
    const { code, stdout, stderr } = await start().outcome;
    expect(code).not.toBe(0);
    expect(stdout).toBe('');
    expect(stderr).toContain('error running hook');
    expect(stderr).toContain(`the devices of the claim were not ready in time: they are in sandbox ${'b'.repeat(64)}`);
    expect(stderr).toContain('see the logs of the netdra pod on this node');
  });

  it('refuses it at once when its sandbox ends', async () => {
    const { outcome } = start();
    await untilHookRuns();
    await metadata.endGate(claim, sandbox);
    expect(await outcome).toMatchObject({
      stderr: expect.stringContaining('the sandbox of the container is being stopped'),
    });
  });

  it('ends when runc is killed while it waits', async () => {
    const { child, outcome } = start();
    await untilHookRuns();
    child.kill('SIGKILL');
    await vi.waitFor(() => expect(hooks()).toEqual([]), 5_000);
    // Its container is still there, as after a killed runtime.
    spawnSync(runc, ['--root', join(dir.path, 'runc'), 'delete', '--force', id]);
    await outcome;
  });

  it('ends when the first process of the container is killed while it waits', async () => {
    const { outcome } = start();
    await untilHookRuns();
    const [hook = 0] = hooks();
    const status = readFileSync(`/proc/${hook}/status`, 'utf8');
    const parent = Number(/^PPid:\t(\d+)$/m.exec(status)?.[1]);
    const init = readdirSync('/proc')
      .map(Number)
      .filter((pid) => pid > 0 && pid !== hook)
      .find((pid) => {
        try {
          return new RegExp(`^PPid:\\t${parent}$`, 'm').test(readFileSync(`/proc/${pid}/status`, 'utf8'));
        } catch {
          return false;
        }
      });
    process.kill(init ?? 0, 'SIGKILL');
    expect(await outcome).toMatchObject({ stderr: expect.stringContaining('the container has ended') });
  });

  it('waits with metadata off, too, where the container mounts nothing', async () => {
    metadata = new ClaimMetadata({
      driver,
      dataDir,
      cdiDir: join(dir.path, 'cdi'),
      layouts: [layouts.v1],
      enabled: false,
      gate: { program: join(dataDir, 'bin/netdra-gate'), timeoutSeconds: 30 },
    });
    await metadata.prepare({ ...record, claim: { ...claim, uid: 'another' } }, new Map());
    rmSync(join(dir.path, 'bundle'), { recursive: true, force: true });
    const { outcome } = start();
    await untilHookRuns();
    await sleep(300);
    expect(hooks()).toHaveLength(1);
    await metadata.openGate({ ...claim, uid: 'another' }, sandbox);
    expect(await outcome).toMatchObject({ stderr: '' });
    expect(hooks()).toEqual([]);
  });
});
