import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { startContainerd } from '../../e2e/node/containerd.ts';
import { listLeftovers, takeBaseline } from '../../e2e/node/leftovers.ts';
import { runContainer, runPod } from '../../e2e/node/pod.ts';
import { containerdSeries } from '../../e2e/node/tools.ts';

const newDir = () => join(mkdtempSync(join(tmpdir(), 'ctrd-')), 'c');

/** All else of them is used by the suites of e2e, which check with `listLeftovers` that they leave nothing behind. */
describe('a containerd of the suites', () => {
  it.each(containerdSeries)('%s: leaves nothing behind, though pods run when it goes', async (version) => {
    const before = takeBaseline();
    const containerd = await startContainerd({ version, dir: newDir() });
    const { cri } = containerd;
    const sandbox = await runPod(cri, { name: 'forgotten', namespace: 'default', uid: randomUUID() });
    await runContainer(cri, sandbox, { name: 'main' });
    const running = listLeftovers(containerd, before).map((line) => line.split(' ')[0]);
    expect(new Set(running)).toEqual(new Set(['process', 'mount', 'network', 'link', 'CNI', 'cgroup']));
    await containerd[Symbol.asyncDispose]();
    expect(listLeftovers(containerd, before)).toEqual([]);
    expect(existsSync(containerd.dir)).toBe(false);
  });

  it('refuses to start on the machine itself', async () => {
    const dir = newDir();
    const failed = startContainerd({ version: '2.1', dir, env: {} });
    await expect(failed).rejects.toMatchObject({ code: 'not-in-node', hint: expect.stringContaining('in-node.sh') });
    rmSync(join(dir, '..'), { recursive: true });
  });
});
