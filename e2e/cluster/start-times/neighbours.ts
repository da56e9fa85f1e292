import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { goDriverArgs, goDriverName } from '../../../test/bench/go/programs.ts';
import { Program } from '../../node/program.ts';
import { kubeletDir } from '../node/kubelet.ts';
import { nodeName, nodePaths, type RealNode } from '../node/real-node.ts';

const registryDir = join(kubeletDir, 'plugins_registry');

/** Upstream's DRA test driver on a node. @param kubernetes folder with its program */
export async function startGoDriver(node: RealNode, kubernetes: string, devices: number): Promise<Program> {
  const { adminKubeconfig: kubeconfig } = node.controlPlane;
  const { kubeletPlugins: pluginsDir, cdi: cdiDir } = nodePaths;
  mkdirSync(join(pluginsDir, goDriverName));
  return await Program.start({
    program: join(kubernetes, 'test-driver'),
    args: goDriverArgs({ nodeName, pluginsDir, registryDir, cdiDir, devices, kubeconfig }),
    logPath: join(node.dir, 'logs', 'test-driver.log'),
    isReady: async () => existsSync(join(registryDir, `${goDriverName}-reg.sock`)),
  });
}

/** The NRI plugin in Go on a node. */
export async function startGoPlugin(node: RealNode, program: string): Promise<Program> {
  const args = [join(nodePaths.nri, 'nri.sock'), 'go', '20'];
  const logPath = join(node.dir, 'logs', 'nri-plugin.log');
  return await Program.start({ program, args, logPath, isReady: async () => true });
}
