import type { Plugin } from 'esbuild';

/** Beside the program. */
export const clientNodeFile = 'client-node.cjs';

/** All that the driver uses of client-node. */
export const clientNodeSource = "export { KubeConfig } from '@kubernetes/client-node';";

/**
 * Leaves client-node out of the program: it is asked for, in the file that it has of its own, when a kubeconfig is
 * read. A driver in a cluster reads none, and client-node takes as much memory as all the rest of it.
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
