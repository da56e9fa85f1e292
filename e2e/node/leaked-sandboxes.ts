import { readSnippets } from '../../test/unit/docs/pages.ts';
import type { Containerd } from './containerd.ts';
import { run } from './packages/run.ts';
import { locateTools } from './tools.ts';

/** Removes what a containerd 2.1 has leaked, by the commands of the docs. @throws CommandError */
export function removeLeakedSandboxes({ socketPath }: Pick<Containerd, 'socketPath'>): void {
  const snippets = readSnippets('docs/troubleshooting.md').filter(({ info }) => info === 'sh leaked-sandboxes');
  const path = [locateTools(process.env).containerdDirs['2.1'], process.env.PATH].join(':');
  const env = { ...process.env, PATH: path, CONTAINERD_ADDRESS: socketPath };
  run('bash', ['-ec', snippets.map(({ content }) => content).join('')], { env, name: 'removal of leaked sandboxes' });
}
