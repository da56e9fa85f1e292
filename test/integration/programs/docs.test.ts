import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { buildTimeoutMs, checkedTool } from './checked-tool.ts';
import { ContainerRoot, vf } from './container-root.ts';
import { consoleCommands, fencedBlocks } from './fenced-blocks.ts';

// Programs with sanitizers are slow on a machine with other work.
vi.setConfig({ testTimeout: 60_000 });

const repo = fileURLToPath(new URL('../../../', import.meta.url));
const page = readFileSync(join(repo, 'docs/cnf-developers.md'), 'utf8');

describe('docs/cnf-developers.md', () => {
  const blocks = fencedBlocks(page);
  const extendedResourceScript = blocks.find(({ content }) => content.includes('$NIC_COUNT'));

  it('quotes the examples verbatim', () => {
    const shown = blocks.filter(({ file }) => file !== undefined);
    expect(shown.length).toBeGreaterThanOrEqual(2);
    for (const { file = '', content } of shown) expect(content, file).toBe(readFileSync(join(repo, file), 'utf8'));
  });

  it('has only commands that run in this test in its code blocks', () => {
    const others = blocks.filter(({ file, language }) => file === undefined && language !== 'console');
    expect(others).toEqual([extendedResourceScript]);
    // A block that the expression above did not see would not be tested.
    expect(page.match(/^```/gm)).toHaveLength(2 * blocks.length);
  });

  describe('shows the real output of', () => {
    let tool: string;
    beforeAll(() => {
      ({ tool } = checkedTool());
    }, buildTimeoutMs);

    /** The container that the page speaks of. */
    async function container(): Promise<ContainerRoot> {
      const root = new ContainerRoot();
      await root.prepare({ claim: 'app-nic-x7k2p', podClaimName: 'nic', devices: [vf(1)] });
      await root.prepare({ claim: 'mgmt', request: 'net', devices: [vf(2, 'igbvf')] });
      return root;
    }

    const commands = blocks
      .filter(({ language }) => language === 'console')
      .flatMap(({ content }) => consoleCommands(content));
    it.each(commands)('$ $command', async ({ command, output }) => {
      using root = await container();
      expect(runIn(root, command)).toBe(output);
    });

    it('a script that finds the VFs of an extended resource', async () => {
      using root = new ContainerRoot();
      const names = { claim: 'app-extended-resources-5x2wk', request: 'container-0-request-0' };
      const extendedResources = ['netdra.dev/kernel-vf'];
      await root.prepare({ ...names, extendedResources, devices: [vf(1), vf(2, 'igbvf')] });
      expect(runIn(root, extendedResourceScript?.content ?? '')).toBe('2 VFs, the first one is net1\n');
    });

    function runIn(root: ContainerRoot, command: string): string {
      const binDir = join(root.path, 'bin');
      mkdirSync(binDir);
      writeFileSync(join(binDir, 'netdra-metadata'), `#!/bin/sh\nexec '${tool}' --root '${root.path}' "$@"\n`, {
        mode: 0o755,
      });
      const { stdout, stderr } = spawnSync('sh', ['-c', command], {
        env: { ...process.env, PATH: `${binDir}:${process.env.PATH}` },
        encoding: 'utf8',
      });
      // Columns stand between tabs, which a page does not show.
      return `${stdout}${stderr.replaceAll(root.path, '')}`.replaceAll('\t', ' ');
    }

    it('all commands of the page', () => expect(commands.length).toBeGreaterThan(10));
  });
});
