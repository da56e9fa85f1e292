import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, build, type Metafile } from 'esbuild';
import { NetdraError } from '../../src/lib/errors.ts';
import { builtinModules } from './builtin-modules.ts';
import { clientNodeApart, clientNodeFile, clientNodeSource } from './client-node.ts';
import { makeCompileCache } from './compile-cache.ts';
import {
  type Architecture,
  architectures,
  cacheDir,
  commandPath,
  gatePath,
  nodePath,
  programDir,
  programPath,
} from './layout.ts';
import { nativeFiles, nativePackagesInside } from './native-packages.ts';

export interface ImageFilesOptions {
  /** Becomes the image's `/`; its previous content is removed. */
  outDir: string;
  architecture: Architecture;
  /** `netdra-gate` for that processor; static. */
  gateProgram: string;
  /** A `node_modules` with the native packages for that processor, default the repository's own. */
  modulesDir?: string;
}

const repo = fileURLToPath(new URL('../../', import.meta.url));

/**
 * Makes the image without Node.js: the driver in one file, the wire contracts, the binaries of the native packages and
 * the start gate for one processor, the licences of all parts and, for this machine's processor, V8's compiled code.
 * @throws NetdraError `package-missing` if the native packages for that processor are not installed
 */
export async function makeImageFiles(options: ImageFilesOptions): Promise<void> {
  const { outDir, architecture, gateProgram, modulesDir = join(repo, 'node_modules') } = options;
  rmSync(outDir, { recursive: true, force: true });
  const top = join(outDir, programDir);
  const program = join(outDir, programPath);
  const packages = [
    ...(await bundle({ outfile: program, plugins: [nativePackagesInside, clientNodeApart], shebang: nodePath })),
    ...(await bundleClientNode(join(dirname(program), clientNodeFile))),
  ];
  chmodSync(program, 0o755);
  mkdirSync(join(outDir, dirname(commandPath)), { recursive: true });
  symlinkSync(relative(join('/', dirname(commandPath)), join('/', programPath)), join(outDir, commandPath));
  copyFiles(join(repo, 'proto'), join(top, 'proto'), (path) => path.endsWith('.proto'));
  const natives = copyNativeBinaries(modulesDir, dirname(program), architectures[architecture]);
  mkdirSync(join(outDir, dirname(gatePath)), { recursive: true });
  cpSync(gateProgram, join(outDir, gatePath));
  chmodSync(join(outDir, gatePath), 0o755);
  cpSync(join(repo, 'LICENSE'), join(top, 'LICENSE'));
  writeFileSync(join(top, 'THIRD-PARTY-LICENSES'), collectLicences([...packages, ...natives]));
  if (architectures[architecture] === process.arch) makeCompileCache(outDir);
}

/**
 * Makes the commands of the npm package: the driver, and beside it the plugin of kubectl, with the licences of their parts.
 * The native packages are those that npm installs with it; `proto/` has to be beside its folder. Besides the commands there
 * are files that they load once they have checked the version of Node.js.
 */
export async function makePackageProgram(outfile: string): Promise<void> {
  const external = Object.keys(nativeFiles);
  const outdir = dirname(outfile);
  const names = {
    outdir,
    splitting: true,
    chunkNames: 'part-[hash]',
    entryNames: basename(outfile, '.mjs'),
    outExtension: { '.js': '.mjs' },
  };
  const packages = await bundle({ ...names, external, shebang: '/usr/bin/env node' });
  // A file of its own: package managers that start commands by a script keep no name of a link.
  const plugin = join(outdir, 'kubectl-netdra.mjs');
  writeFileSync(plugin, `#!/usr/bin/env node\nimport './${basename(outfile)}';\n`);
  // kubectl asks it what may follow: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins.
  const completion = join(outdir, 'kubectl_complete-netdra.mjs');
  const words = "process.argv.splice(2, 0, 'completion', 'kubectl', '--');";
  writeFileSync(completion, `#!/usr/bin/env node\n${words}\nawait import('./${basename(outfile)}');\n`);
  for (const command of [outfile, plugin, completion]) chmodSync(command, 0o755);
  writeFileSync(join(outdir, 'THIRD-PARTY-LICENSES'), collectLicences(packages));
}

/** Makes the program of all commands in one file. @returns folders of the packages that are bundled */
export async function bundle({
  shebang,
  plugins = [],
  ...options
}: BuildOptions & { shebang: string }): Promise<string[]> {
  const { metafile } = await build({
    ...common,
    ...options,
    metafile: true,
    entryPoints: [join(repo, 'src/main.ts')],
    format: 'esm',
    plugins: [builtinModules, ...plugins],
    banner: {
      js: [
        `#!${shebang}`,
        // Some packages are CommonJS and ask for Node.js' own modules.
        "import { createRequire as createRequireOfBundle } from 'node:module';",
        'const require = createRequireOfBundle(import.meta.url);',
        // As globals these two are getters.
        'const { Buffer, process } = globalThis;',
      ].join('\n'),
    },
  });
  return packagesIn(metafile);
}

/** @returns folders of the packages that are bundled */
async function bundleClientNode(outfile: string): Promise<string[]> {
  const stdin = { contents: clientNodeSource, resolveDir: repo };
  const { metafile } = await build({ ...common, stdin, outfile, format: 'cjs' });
  return packagesIn(metafile);
}

const common = {
  absWorkingDir: repo,
  bundle: true,
  platform: 'node',
  target: 'node24',
  // Node.js 24 knows it; esbuild's replacement takes longer.
  supported: { using: true },
  // Names in stack traces are worth their bytes, blanks are not: Node.js reads and checks the whole text.
  minifyWhitespace: true,
  minifySyntax: true,
  lineLimit: 160,
  legalComments: 'none',
  metafile: true,
  logLevel: 'silent',
} as const satisfies BuildOptions;

function packagesIn({ inputs }: Metafile): string[] {
  const folders = Object.keys(inputs).map((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(path)?.[0]);
  return [...new Set(folders)].filter((folder) => folder !== undefined).map((folder) => join(repo, folder));
}

/** @returns the packages' folders, as they were found */
function copyNativeBinaries(modulesDir: string, target: string, cpu: string): string[] {
  // The binaries for musl are left out: the image has the GNU C library.
  const binaries: Record<keyof typeof nativeFiles, string> = {
    koffi: `@koromix/koffi-linux-${cpu}/linux_${cpu}/koffi.node`,
    netlink: `netlink/prebuilds/linux-${cpu}/node.napi.node`,
  };
  return (Object.keys(nativeFiles) as (keyof typeof nativeFiles)[]).map((name) => {
    const source = join(modulesDir, binaries[name]);
    if (!existsSync(source)) {
      throw new NetdraError('package-missing', `no ${binaries[name]} in ${modulesDir}`, {
        hint: `run: npm install --no-save --omit=dev --ignore-scripts --os=linux --cpu=${cpu} --libc=glibc`,
      });
    }
    cpSync(source, join(target, nativeFiles[name]));
    return join(modulesDir, name);
  });
}

/** @param isWanted of paths below `source` */
function copyFiles(source: string, target: string, isWanted: (path: string) => boolean): void {
  for (const entry of readdirSync(source, { recursive: true, withFileTypes: true })) {
    const path = relative(source, join(entry.parentPath, entry.name));
    if (!entry.isFile() || path.startsWith('node_modules/') || !isWanted(path)) continue;
    mkdirSync(dirname(join(target, path)), { recursive: true });
    cpSync(join(source, path), join(target, path));
  }
}

/** @throws NetdraError `licence-missing` for a package without licence information */
function collectLicences(folders: string[]): string {
  const texts = folders.map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    if (license === undefined && file === undefined) {
      throw new NetdraError('licence-missing', `package ${name} in ${folder} has no licence`);
    }
    const text = file === undefined ? '' : `\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
    return `${name} ${version}: ${license ?? `see ${file}`}\n${text}`;
  });
  return [...new Set(texts)].sort().join(`\n${'-'.repeat(80)}\n\n`);
}

export interface ImageFile {
  /** Path from the root of the image. */
  path: string;
  sizeBytes: number;
}

/** Entries of the folder, with V8's compiled code as one of them. */
export function listImageFiles(outDir: string): ImageFile[] {
  const sizes = new Map<string, number>();
  for (const entry of readdirSync(outDir, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const isCache = path.startsWith(`${join(outDir, cacheDir)}/`);
    const key = isCache ? `/${cacheDir}/*` : `/${relative(outDir, path)}`;
    sizes.set(key, (sizes.get(key) ?? 0) + statSync(path).size);
  }
  return [...sizes].map(([path, sizeBytes]) => ({ path, sizeBytes })).sort((a, b) => (a.path < b.path ? -1 : 1));
}
