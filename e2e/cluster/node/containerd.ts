import { join } from 'node:path';
import { leaksSandboxes } from '../../../src/cli/checks/runtime.ts';
import { startContainerd } from '../../node/containerd.ts';
import { importArchive } from '../../node/import-archive.ts';
import { removeLeakedSandboxes, removeLeakedSandboxesOffline } from '../../node/leaked-sandboxes.ts';
import { type ContainerdSeries, locateTools, type NodeTools } from '../../node/tools.ts';
import { isOfUnfinishedSandbox, nriRequestTimeoutMs, type Runtime, type RuntimeOptions } from './runtime.ts';

export interface ContainerdPrograms {
  kind: 'containerd';
  series: ContainerdSeries;
  /** Folder of its programs, default the one that the suite of e2e/node uses. */
  dir?: string;
}

/** @throws ContainerdError, ToolError */
export async function startContainerdRuntime(programs: ContainerdPrograms, options: RuntimeOptions): Promise<Runtime> {
  const tools = toolsOf(programs);
  const { dir, cdiSpecDir, nriSocketPath } = options;
  const containerd = await startContainerd({
    version: programs.series,
    dir,
    nriSocketPath,
    tools,
    cdiSpecDirs: [cdiSpecDir],
    requestTimeoutMs: nriRequestTimeoutMs,
  });
  const { socketPath, cri, network, cniBinDir } = containerd;
  let wasKilled = false;
  return {
    dir,
    socketPath,
    cri,
    network,
    cniBinDir,
    volatileDirs: [join(dir, 'state')],
    endTimeoutMs: 60_000,
    async stop(signal) {
      wasKilled ||= signal === 'SIGKILL';
      await containerd.stop(signal);
    },
    async start() {
      try {
        await containerd.start();
      } catch (error) {
        // A containerd defect, documented for operators: a sandbox whose start was cancelled has left a second record.
        const isLeak = leaksSandboxes({ name: 'containerd', version: containerd.version });
        if (!isLeak || !/failed to reserve sandbox name/.test(containerd.logTail(1))) throw error;
        console.warn('containerd does not start for sandboxes that it has leaked: they are removed, as the docs say');
        await containerd.stop();
        await removeLeakedSandboxesOffline(containerd);
        await containerd.start();
      }
    },
    replaceBy: (other) => containerd.replaceBy(other.series, toolsOf(other)),
    provideImage: (archive, image) => importArchive(containerd, archive, [image]),
    isOwnLeak: (leftover) => wasKilled && isOfUnfinishedSandbox(leftover),
    removeLeaks: () => {
      if (leaksSandboxes({ name: 'containerd', version: containerd.version })) removeLeakedSandboxes(containerd);
    },
    [Symbol.asyncDispose]: () => containerd[Symbol.asyncDispose](),
  };
}

function toolsOf({ series, dir }: ContainerdPrograms): NodeTools {
  const tools = locateTools();
  if (dir !== undefined) tools.containerdDirs[series] = dir;
  return tools;
}
