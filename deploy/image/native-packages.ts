import type { Plugin } from 'esbuild';

/** Binaries of native packages, beside the program. */
export const nativeFiles = { koffi: 'koffi.node', netlink: 'netlink.node' } as const;

/** The part of netlink that we use. Its index loads everything it supports, including Wi-Fi and WireGuard. */
const netlinkModules = ['constants', 'raw', 'structs', 'netlink'];

/**
 * Bundles the JavaScript of the native packages into the program, so that Node.js need not read their files one by one,
 * search for the matching binary, and load what only that search needs. Their binaries are loaded from their place in
 * the image. koffi's own JavaScript only selects its binary and warns of deprecated use, so it is left out.
 */
export const nativePackagesInside: Plugin = {
  name: 'native packages inside',
  setup({ initialOptions, onResolve, onLoad }) {
    const namespace = 'native-package';
    // netlink passes its folder to node-gyp-build, which is replaced below and ignores it.
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
