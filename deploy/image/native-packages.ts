import type { Plugin } from 'esbuild';

/** Binaries of native packages, beside the program. */
export const nativeFiles = { koffi: 'koffi.node', netlink: 'netlink.node' } as const;

/** What we use of netlink. Its index loads all that it knows, Wi-Fi and WireGuard too. */
const netlinkModules = ['constants', 'raw', 'structs', 'netlink'];

/**
 * Takes the JavaScript of the native packages into the program, so that Node.js need not find and read their files one by
 * one, look for the binary that fits, and load what only that takes. Their binaries are asked for where the image has
 * them. koffi's own JavaScript but chooses its binary and warns of what is deprecated, so it stays out.
 */
export const nativePackagesInside: Plugin = {
  name: 'native packages inside',
  setup({ initialOptions, onResolve, onLoad }) {
    const namespace = 'native-package';
    // netlink tells where it lies, which nobody asks any more.
    initialOptions.define = { ...initialOptions.define, __dirname: 'import.meta.dirname' };
    onResolve({ filter: /^(koffi|netlink|node-gyp-build)$/ }, ({ path }) => ({ path, namespace }));
    onResolve({ filter: /\.node$/, namespace }, ({ path }) => ({ path, external: true }));
    onLoad({ filter: /^koffi$/, namespace }, () => binary(nativeFiles.koffi));
    onLoad({ filter: /^netlink$/, namespace }, () => ({
      contents: netlinkModules.map((name) => `export * from 'netlink/dist/${name}.js';`).join('\n'),
      ...(initialOptions.absWorkingDir === undefined ? {} : { resolveDir: initialOptions.absWorkingDir }),
    }));
    onLoad({ filter: /^node-gyp-build$/, namespace }, () => binary(nativeFiles.netlink, (file) => `() => ${file}`));
  },
};

function binary(file: string, use = (loaded: string) => loaded) {
  return { contents: `module.exports = ${use(`require('./${file}')`)};` };
}
