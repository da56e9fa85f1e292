import type { Plugin } from 'esbuild';

/** Beside the program. */
export const clientNodeFile = 'client-node.cjs';

/** The parts of client-node that the driver and its tools use. */
export const clientNodeSource = "export { Exec, KubeConfig } from '@kubernetes/client-node';";

/**
 * Leaves client-node out of the program: it is in a file of its own, which is loaded when a kubeconfig is read.
 * A driver in a cluster reads none, and client-node takes as much memory as all the rest of the driver.
 */
export const clientNodeApart: Plugin = {
  name: 'client-node apart',
  setup({ onResolve, onLoad }) {
    const namespace = 'client-node';
    onResolve({ filter: /^@kubernetes\/client-node$/ }, ({ path }) => ({ path, namespace }));
    onResolve({ filter: /^\.\/client-node\.cjs$/, namespace }, ({ path }) => ({ path, external: true }));
    onLoad({ filter: /./, namespace }, () => ({ contents: `module.exports = require('./${clientNodeFile}');` }));
  },
};
