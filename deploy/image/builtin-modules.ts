import { isBuiltin } from 'node:module';
import type { Plugin } from 'esbuild';

const namespace = 'builtin-module';

/**
 * Loads Node.js' own modules with `require` instead of `import`. An import reads each export of a module at once, also
 * those that are created on first access: `import 'node:http'` loads all of undici for its `WebSocket`, which alone
 * takes longer than starting Node.js, and costs memory permanently.
 */
export const builtinModules: Plugin = {
  name: 'builtin modules',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^[a-z]/ }, ({ path, namespace: from }) => {
      if (from === namespace || !isBuiltin(path)) return undefined;
      return { path: path.replace(/^node:/, ''), namespace };
    });
    onLoad({ filter: /./, namespace }, ({ path }) => ({
      contents: `module.exports = process.getBuiltinModule(${JSON.stringify(`node:${path}`)});`,
      loader: 'js',
    }));
  },
};
