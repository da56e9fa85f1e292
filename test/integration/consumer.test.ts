import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { buildConsumer, programsFolder } from '../../programs/build.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { isStaticProgram } from '../../scripts/packages/elf.ts';
import { isMachineRoot } from '../doubles/machine-root.ts';
import { buildTimeoutMs } from './programs/checked-tool.ts';
import { ContainerRoot, runProgram, vf } from './programs/container-root.ts';

/** The tool as it is shipped; its behaviour is tested with sanitizers in test/integration/programs. */
describe('the static netdra-metadata binary', () => {
  let tool: string;
  let root: ContainerRoot;
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
  beforeAll(() => {
    const cacheDir = cacheFolder(process.env);
    tool = buildConsumer({ outDir: programsFolder(cacheDir, 'static'), cacheDir });
  }, buildTimeoutMs);
  beforeEach(() => {
    root = new ContainerRoot();
  });
  afterEach(() => root[Symbol.dispose]());

  it('is small and has no dependencies', () => {
    expect(isStaticProgram(tool)).toBe(true);
    expect(statSync(tool).size).toBeLessThan(200_000);
    expect(runProgram(tool, ['version'], {}).stdout).toBe(`${version}\n`);
  });

  it.runIf(isMachineRoot)(
    'runs for any user in a root file system that contains only the binary and metadata files',
    async () => {
      await root.prepare({ claim: 'nic', devices: [vf(1)] });
      copyFileSync(tool, join(root.path, 'tool'));
      const { stdout, stderr, exitCode } = runProgram('chroot', ['--userspec=107:107', root.path, '/tool', 'eal-args']);
      expect({ stdout, stderr, exitCode }).toEqual({ stdout: '-a 0000:3b:02.1\n', stderr: '', exitCode: 0 });
    },
  );

  it('never prints a mix of two versions of a file while another process keeps rewriting it', async () => {
    const devices = (index: number) => ({
      attributes: Object.fromEntries(
        Array.from({ length: 30 }, (_unused, attribute) => [
          `a${attribute}`,
          { string: `v${index}`.repeat(1 + (index % 7)) },
        ]),
      ),
    });
    const update = await root.prepare({ claim: 'nic', devices: [devices(0)] });
    const script =
      'for i in $(seq 300); do "$0" --root "$1" get nic/vf ".requests[0].devices[0].attributes[*].string" || exit; echo; done';
    const reader = spawn('sh', ['-c', script, tool, root.path], { stdio: ['ignore', 'pipe', 'inherit'] });
    const exit = once(reader, 'exit');
    let text = '';
    reader.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
    let isDone = false;
    const done = exit.finally(() => {
      isDone = true;
    });
    for (let index = 1; !isDone; index++) {
      await update([devices(index)]);
      // Writing does not wait for anything, and what the reader says has to be taken from it.
      await setImmediate();
    }
    expect((await done)[0]).toBe(0);
    const seen = text.trim().split('\n\n');
    expect(seen).toHaveLength(300);
    for (const each of seen) expect(new Set(each.split('\n')).size, each).toBe(1);
    expect(new Set(seen).size).toBeGreaterThan(10);
  });
});
