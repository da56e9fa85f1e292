import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { run } from '../../scripts/packages/run.ts';
import { readSnippets } from '../../test/unit/docs/pages.ts';
import type { Containerd } from './containerd.ts';
import { locateTools } from './tools.ts';

/** Removes what a containerd 2.1 has leaked, with the documented commands. @throws CommandError */
export function removeLeakedSandboxes({ socketPath }: Pick<Containerd, 'socketPath'>): void {
  const snippets = readSnippets('docs/troubleshooting.md').filter(({ info }) => info === 'sh leaked-sandboxes');
  const path = [locateTools(process.env).containerdDirs['2.1'], process.env.PATH].join(':');
  const env = { ...process.env, PATH: path, CONTAINERD_ADDRESS: socketPath };
  run('bash', ['-ec', snippets.map(({ content }) => content).join('')], { env, name: 'removal of leaked sandboxes' });
}

/**
 * An operator's steps for a containerd 2.1 that does not start because of leaked sandboxes (containerd issue 13609):
 * starts it without its CRI plugin and removes them. It must be stopped before the call, and is stopped afterwards.
 * @throws CommandError; Error if it does not start even without the plugin
 */
export async function removeLeakedSandboxesOffline(containerd: Pick<Containerd, 'ctr' | 'dir' | 'socketPath'>) {
  const { containerdDirs, runc } = locateTools(process.env);
  const path = join(containerd.dir, 'config.toml');
  const config = readFileSync(path, 'utf8');
  writeFileSync(path, `disabled_plugins = ["io.containerd.grpc.v1.cri"]\n${config}`);
  const child = spawn(join(containerdDirs['2.1'], 'containerd'), ['--config', path], {
    stdio: 'ignore',
    env: { ...process.env, PATH: [dirname(runc), process.env.PATH].join(':') },
  });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  try {
    const endsAt = performance.now() + 20_000;
    while (!(await containerd.ctr('version').catch(() => '')).includes('Server')) {
      if (performance.now() > endsAt) throw new Error('containerd does not start without its CRI plugin');
      await sleep(100);
    }
    removeLeakedSandboxes(containerd);
  } finally {
    child.kill('SIGTERM');
    await exited;
    writeFileSync(path, config);
  }
}
