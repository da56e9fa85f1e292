import { isBuiltin } from 'node:module';
import type { Plugin } from 'esbuild';

/** For `import`, and for `require`. */
const namespaces = { imported: 'builtin-import', required: 'builtin-require' } as const;

/**
 * Loads Node.js' own modules by `process.getBuiltinModule` instead of `import`. An import reads each export of a module at
 * once, also those that are created on first access: `import 'node:http'` loads all of undici for its `WebSocket`, which
 * alone takes longer than starting Node.js, and costs memory permanently. Only the imported exports are read, and only
 * once: esbuild's own way to import from `require` calls a function at each use, thousands of times for a pod.
 */
export const builtinModules: Plugin = {
  name: 'builtin modules',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^[a-z]/ }, ({ path, kind }) => {
      if (!isBuiltin(path)) return undefined;
      const namespace = kind === 'require-call' ? namespaces.required : namespaces.imported;
      return { path: path.replace(/^node:/, ''), namespace, sideEffects: false };
    });
    onLoad({ filter: /./, namespace: namespaces.required }, ({ path }) => ({
      contents: `module.exports = ${source(path)};`,
      loader: 'js',
    }));
    onLoad({ filter: /./, namespace: namespaces.imported }, ({ path }) => ({
      contents: importable(path),
      loader: 'js',
    }));
  },
};

function source(path: string): string {
  return `process.getBuiltinModule(${JSON.stringify(`node:${path}`)})`;
}

/** Returns a module of which esbuild leaves out what is not imported. */
function importable(path: string): string {
  const names = Object.keys(process.getBuiltinModule(`node:${path}`) ?? {}).filter((name) => name !== 'default');
  const members = names.map((name, index) => {
    const local = `member${index}`;
    return `const ${local} = /* @__PURE__ */ (() => all[${JSON.stringify(name)}])(); export { ${local} as ${name} };`;
  });
  return [`const all = ${source(path)};`, 'export default all;', ...members].join('\n');
}
