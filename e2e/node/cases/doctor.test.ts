import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { Finding } from '../../../src/cli/finding.ts';
import { tempDir } from '../../../test/doubles/temp-dir.ts';
import { builtDriver } from '../built-driver.ts';
import { startContainerd } from '../containerd.ts';

/** @returns its exit code and findings */
async function doctor(...args: string[]): Promise<{ code: number; findings: Finding[] }> {
  const program = await builtDriver();
  return await new Promise((resolve) => {
    execFile(process.execPath, [program, 'doctor', '-o', 'json', ...args], (error, stdout) =>
      resolve({ code: error === null ? 0 : Number(error.code), findings: JSON.parse(stdout) }),
    );
  });
}

/** With both switched on: e2e/cluster/cases/tools.ts. */
it.each([
  ['1.7', 'both off by default', /^(disable|enable_cdi) = .*$/gm, 'io.containerd.grpc.v1.cri'],
  ['2.1', 'both switched off', undefined, 'io.containerd.cri.v1.runtime'],
] as const)('netdra doctor tells where to enable NRI and CDI of containerd %s: %s', async (...args) => {
  const [version, , defaults, section] = args;
  using dir = tempDir();
  const containerdDir = join(dir.path, 'containerd');
  mkdirSync(containerdDir);
  await using containerd = await startContainerd({ version, dir: containerdDir });
  await containerd.stop();
  const path = join(containerdDir, 'config.toml');
  const config = readFileSync(path, 'utf8');
  const off = config.replace('disable = false', 'disable = true').replace('enable_cdi = true', 'enable_cdi = false');
  writeFileSync(path, defaults === undefined ? off : config.replace(defaults, ''));
  rmSync(containerd.nriSocketPath, { force: true });
  await containerd.start();
  const { nriSocketPath, socketPath } = containerd;
  const { code, findings } = await doctor(`--nri-socket=${nriSocketPath}`, `--cri-socket=${socketPath}`);
  expect(code).toBe(1);
  expect(findings).toContainEqual({
    check: 'NRI',
    level: 'problem',
    message: `off: there is no socket ${nriSocketPath}`,
    fix: expect.stringContaining('set disable = false in [plugins."io.containerd.nri.v1.nri"]'),
  });
  expect(findings).toContainEqual({
    check: 'CDI',
    level: 'problem',
    message: 'off: containers get neither their metadata nor /dev/vfio',
    fix: expect.stringContaining(`enable_cdi = true in [plugins."${section}"]`),
  });
});
