import { isBuiltin } from 'node:module';
import type { Plugin } from 'esbuild';

const namespace = 'builtin-module';

/**
 * Has Node.js' own modules asked for as `require` does it, not as `import` does. An import reads each of a module's
 * exports at once, those too that are made when they are first asked for: `import 'node:http'` loads all of undici for its
 * `WebSocket`, which alone takes longer than starting Node.js, and memory for good.
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
