import { chmodSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Plugin } from 'esbuild';
import { expect } from 'vitest';
import { clientNodeApart } from '../../../deploy/image/client-node.ts';
import { bundle } from '../../../deploy/image/image-files.ts';
import { nodePath, programPath } from '../../../deploy/image/layout.ts';
import { nativePackagesInside } from '../../../deploy/image/native-packages.ts';
import { driverNamespace } from './driver.ts';
import type { RealNode } from './real-node.ts';

const faultyApp = fileURLToPath(new URL('faulty-app.ts', import.meta.url));

/** Its commands take the app of the test, which takes the driver's own. */
const withFaultyApp: Plugin = {
  name: 'faulty app',
  setup({ onResolve }) {
    onResolve({ filter: /^\.\/app\.ts$/ }, () => ({ path: faultyApp }));
  },
};

/**
 * The installed driver with a planted bug: its own sources, in its own image, with a part of the test between the driver and
 * its ports. Disposing brings the driver as it was installed back.
 */
export async function runFaultyDriver(node: RealNode, bug: string): Promise<AsyncDisposable> {
  const path = join(node.dir, 'faulty-netdra.mjs');
  const plugins = [withFaultyApp, nativePackagesInside, clientNodeApart];
  await bundle({ outfile: path, plugins, shebang: nodePath });
  chmodSync(path, 0o755);
  const kubectl = (...args: string[]) => node.kubectl(...args, '--namespace', driverNamespace);
  /** Also waits until the old instance has ended: the next pod must be served by the new one. */
  const rollout = async () => {
    kubectl('rollout', 'status', 'daemonset/netdra', '--timeout=120s');
    await expect.poll(() => node.driverPids().length, { timeout: 60_000 }).toBe(1);
  };
  const mount = { name: 'faulty', mountPath: `/${programPath}`, readOnly: true };
  const container = { name: 'driver', env: [{ name: 'PLANTED_BUG', value: bug }], volumeMounts: [mount] };
  const volume = { name: 'faulty', hostPath: { path, type: 'File' } };
  const patch = { spec: { template: { spec: { containers: [container], volumes: [volume] } } } };
  kubectl('patch', 'daemonset', 'netdra', '--patch', JSON.stringify(patch));
  await rollout();
  return {
    async [Symbol.asyncDispose]() {
      kubectl('rollout', 'undo', 'daemonset/netdra');
      await rollout();
    },
  };
}
