import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import tls from 'node:tls';
import { fileURLToPath } from 'node:url';
import { type Architecture, architectures } from '../../deploy/image/layout.ts';
import {
  type CacheEntry,
  cacheEntryFolder,
  removeCacheEntries,
  takeCacheEntries,
} from '../../scripts/packages/cache.ts';
import { type PackageSet, packageSetFiles, unpackPackageSet } from '../../scripts/packages/package-root.ts';
import { run } from '../../scripts/packages/run.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import { encodeTar, readTarEntries } from '../node/tar.ts';
import { buildahPackages, insideFolders, runBuildah, unpackBuildah } from './buildah.ts';

type Log = (line: string) => void;

const repo = fileURLToPath(new URL('../../', import.meta.url));
const suite = 'bookworm';

/** Replaces an image that the Dockerfile takes from a registry: Debian packages, and Node.js in its place. */
interface BaseImage {
  /** The name in the Dockerfile. */
  name: string;
  /** Processor of what it holds. */
  architecture: Architecture;
  packages: Omit<PackageSet, 'architecture'>;
  /** Paths that are left out: every build copies the image. */
  without?: string[];
  withNode?: boolean;
  /** With `withNode`: npm, too. */
  withNpm?: boolean;
  /** apt regards the packages as installed, and has no sources with newer ones: `apt-get install` does nothing. */
  withApt?: boolean;
}

/** Debian's compilers for a processor, on machines with another one. */
const crossCompilers: Record<Architecture, string[]> = {
  amd64: ['gcc-x86-64-linux-gnu', 'libc6-dev-amd64-cross'],
  arm64: ['gcc-aarch64-linux-gnu', 'libc6-dev-arm64-cross'],
};
/** The image in the Dockerfile whose `node` becomes the driver's, where that is for another processor than the build. */
const foreignNode = 'localhost/netdra/node:24-bookworm-slim';

/** The base images of a build on this machine. */
function baseImages(target: Architecture): BaseImage[] {
  const host = hostArchitecture();
  const compiler = target === host ? ['gcc', 'libc6-dev'] : crossCompilers[target];
  const node: BaseImage = {
    name: 'docker.io/library/node:24-bookworm-slim',
    architecture: host,
    packages: {
      suite,
      packages: ['base-files', 'bash', 'coreutils', 'dash', 'libstdc++6'],
      without: ['debconf', 'mawk', 'perl-base'],
    },
    withNode: true,
    withNpm: true,
  };
  const other: BaseImage = {
    name: foreignNode,
    architecture: target,
    withNode: true,
    packages: { suite, packages: ['base-files'], without: ['mawk'] },
  };
  return [
    {
      name: 'docker.io/library/debian:bookworm-slim',
      architecture: host,
      packages: {
        suite,
        packages: ['apt', 'base-files', 'coreutils', 'dash', ...compiler, 'make'],
        // Needed only for other languages, for run-time checks, and for packages' scripts, which do not run here.
        without: [
          'adduser',
          'debconf',
          'debian-archive-keyring',
          'libasan8',
          'libgprofng0',
          'libitm1',
          'liblsan0',
          'libquadmath0',
          'libtsan2',
          'libubsan1',
          'mawk',
          'perl-base',
          'rpcsvc-proto',
        ],
      },
      without: ['usr/share/doc', 'usr/share/locale', 'usr/share/man', 'usr/bin/x86_64-linux-gnu-lto-dump-12'],
      withApt: true,
    },
    node,
    ...(target === host ? [] : [other]),
    {
      name: 'gcr.io/distroless/cc-debian12:latest',
      architecture: target,
      packages: {
        suite,
        packages: ['base-files', 'libc6', 'libgcc-s1', 'libgomp1', 'libssl3', 'libstdc++6', 'netbase', 'tzdata'],
        without: ['debconf', 'mawk'],
      },
    },
  ];
}

/** The npm of the base image with Node.js. */
const npmVersion = '11.19.1';
/** Path at which npm finds certificates during the build. */
const certificatesInside = '/run/certificates.pem';
/** The driver `vfs` works on every file system. */
const storage = ['--storage-driver', 'vfs', '--root', insideFolders.store];
/** Name of the image in its layout. */
export const driverImage = 'localhost/netdra/driver:test';

/**
 * Builds the unmodified Dockerfile, unless the cache has the image of the same sources. Base images are made of Debian
 * packages, under the names in the Dockerfile; npm packages come from the registry that npm uses on this machine.
 * Needs root and the network; 20 s, the first time a minute more.
 * @param target the processor that it is for; nothing of it is run here if that is not this machine's
 * @returns folder with the image as OCI layout, as registries take it
 * @throws PackageError, CommandError; NetdraError `architecture-unknown`
 */
export function buildDriverImage(cacheDir: string, log: Log, target = hostArchitecture()): string {
  const { folders, lock } = takeCacheEntries(imagesFolder(cacheDir), cacheEntries(cacheDir, log, target));
  lock[Symbol.dispose]();
  return folders[1] ?? '';
}

/** Removes the image and its base images from the cache: the next ones have the newest versions of Debian's packages. */
export function removeDriverImage(cacheDir: string, target: Architecture): void {
  removeCacheEntries(
    imagesFolder(cacheDir),
    cacheEntries(cacheDir, () => undefined, target),
  );
}

/**
 * Builds the Dockerfile again, whatever the cache has of these sources, but with its base images.
 * @param dir for the OCI layout; created
 * @throws CommandError; NetdraError `architecture-unknown`
 */
export function rebuildDriverImage(cacheDir: string, dir: string, target: Architecture): void {
  mkdirSync(dir, { recursive: true });
  const [builder] = cacheEntries(cacheDir, () => undefined, target);
  buildDockerfile(cacheEntryFolder(imagesFolder(cacheDir), builder), dir, target);
}

/**
 * Builds `netdra-metadata` for another processor, by the compiler in the base image that the Dockerfile of `target` needs.
 * @param dir for the program; created
 * @returns its path
 * @throws PackageError, CommandError; NetdraError `architecture-unknown`
 */
export function buildForeignTool(cacheDir: string, dir: string, target: Architecture, version: string): string {
  const [builder] = cacheEntries(cacheDir, () => undefined, target);
  const builderDir = cacheEntryFolder(imagesFolder(cacheDir), builder);
  const mounts = { store: join(builderDir, 'store'), work: join(dir, 'work'), context: join(dir, 'context'), out: dir };
  for (const folder of [mounts.work, mounts.context]) mkdirSync(folder, { recursive: true });
  for (const name of ['Makefile', 'src'])
    cpSync(join(repo, 'programs', name), join(mounts.context, name), { recursive: true });
  const compiler = `${{ amd64: 'x86_64', arm64: 'aarch64' }[target]}-linux-gnu-gcc`;
  const make = `make -C /programs CC=${compiler} OUT=/out VERSION=${version} /out/netdra-metadata`;
  writeFileSync(join(mounts.context, 'Dockerfile'), `FROM debian:bookworm-slim\nCOPY . /programs\nRUN ${make}\n`);
  const flags = ['--pull-never', '--layers=false', '--volume', `${insideFolders.out}:/out`];
  runBuildah(builderDir, mounts, [...storage, 'bud', ...flags, insideFolders.context]);
  for (const folder of [mounts.work, mounts.context]) rmSync(folder, { recursive: true });
  return join(dir, 'netdra-metadata');
}

/**
 * The image of the current sources, which `buildDriverImage` left in the cache.
 * @returns folder with an OCI layout
 * @throws NetdraError `tool-missing`
 */
export function locateDriverImage(cacheDir: string): string {
  const folder = cacheEntryFolder(imagesFolder(cacheDir), cacheEntries(cacheDir, () => undefined)[1]);
  if (existsSync(folder)) return folder;
  throw new NetdraError('tool-missing', `no image of these sources in ${folder}`, {
    hint: 'run `node scripts/fetch-release-tools.ts` first',
  });
}

/** Writes that image as OCI archive, as accepted by `ctr images import`. @throws NetdraError `tool-missing` */
export function writeDriverArchive(path: string, cacheDir: string): void {
  writeFileSync(path, encodeTar(readTarEntries(locateDriverImage(cacheDir))));
}

const imagesFolder = (cacheDir: string) => join(cacheDir, 'image');

function cacheEntries(
  cacheDir: string,
  log: Log,
  target = hostArchitecture(),
): [builder: CacheEntry, driver: CacheEntry] {
  const images = baseImages(target);
  const suffix = target === hostArchitecture() ? '' : `.${target}`;
  const builder: CacheEntry = {
    name: `builder${suffix}`,
    inputs: { buildahPackages, images, npmVersion, node: process.version, insideFolders },
    build: (dir) => {
      log(`fetching Debian packages: ${buildahPackages.packages.join(', ')} (${buildahPackages.suite})`);
      unpackBuildah(dir);
      for (const image of images) makeBaseImage(dir, image, log);
    },
  };
  const driver: CacheEntry = {
    name: `driver${suffix}`,
    inputs: { builder: builder.inputs, driverImage, context: hashContext() },
    build: (dir) => {
      log(`building the Dockerfile for ${target}`);
      buildDockerfile(cacheEntryFolder(imagesFolder(cacheDir), builder), dir, target);
    },
  };
  return [builder, driver];
}

/** Hashes of all files in the build context: those that .dockerignore lets in, and the Dockerfile. */
function hashContext(): [path: string, hash: string][] {
  const ignored = readFileSync(join(repo, '.dockerignore'), 'utf8').split('\n');
  const included = ignored.filter((line) => line.startsWith('!')).map((line) => line.slice(1));
  const files = included.flatMap((path) => listFiles(path)).sort();
  return ['.dockerignore', 'Dockerfile', ...files].map((path) => {
    const hash = createHash('sha256').update(readFileSync(join(repo, path)));
    return [path, hash.digest('hex')];
  });
}

/** @param path of a file or folder in the repository */
function listFiles(path: string): string[] {
  if (!statSync(join(repo, path)).isDirectory()) return [path];
  return readdirSync(join(repo, path)).flatMap((name) => listFiles(join(path, name)));
}

/** Leaves only the image in `dir`, as OCI layout. */
function buildDockerfile(builderDir: string, dir: string, target: Architecture): void {
  const [work, out] = [join(dir, 'work'), join(dir, 'out')];
  for (const folder of [work, out]) mkdirSync(folder);
  // Mounted while commands of the Dockerfile run, so neither becomes part of an image.
  writeFileSync(join(work, 'npmrc'), npmConfig(), { mode: 0o600 });
  writeFileSync(join(work, 'certificates.pem'), certificates());
  const volumes = { npmrc: '/root/.npmrc', 'certificates.pem': certificatesInside };
  // A copy, removed together with what is built in it. buildah 1.28 does not build from an additional image store.
  const store = join(work, 'store');
  run('cp', ['-a', join(builderDir, 'store'), store]);
  const mounts = { store, work, context: repo, out };
  runBuildah(builderDir, mounts, [
    ...storage,
    // Without the times of files and commands: the same sources give the same bytes.
    'bud',
    '--pull-never',
    '--layers=false',
    '--timestamp',
    '0',
    '--platform',
    `linux/${target}`,
    '--build-arg',
    `BUILDPLATFORM=linux/${hostArchitecture()}`,
    ...(target === hostArchitecture() ? [] : ['--build-arg', `TARGET_NODE_IMAGE=${foreignNode}`]),
    ...Object.entries(volumes).flatMap(([name, path]) => ['--volume', `${insideFolders.work}/${name}:${path}:ro`]),
    '--tag',
    driverImage,
    insideFolders.context,
  ]);
  runBuildah(builderDir, mounts, [...storage, 'push', driverImage, `oci:${insideFolders.out}:${driverImage}`]);
  rmSync(work, { recursive: true });
  nameImage(join(out, 'index.json'));
  for (const name of readdirSync(out)) renameSync(join(out, name), join(dir, name));
  rmSync(out, { recursive: true });
}

/** For containerd, which interprets the name that buildah writes as a tag only. */
function nameImage(indexPath: string): void {
  const index = JSON.parse(readFileSync(indexPath, 'utf8'));
  for (const manifest of index.manifests) manifest.annotations['io.containerd.image.name'] = driverImage;
  writeFileSync(indexPath, JSON.stringify(index));
}

/** @throws NetdraError `architecture-unknown` */
export function hostArchitecture(): Architecture {
  const names = Object.keys(architectures) as Architecture[];
  const found = names.find((name) => architectures[name] === process.arch);
  if (found !== undefined) return found;
  throw new NetdraError('architecture-unknown', `there is no image for ${process.arch}`);
}

/** The configuration with which npm reaches its registry on this machine. */
function npmConfig(): string {
  const files = [npmSetting('globalconfig'), npmSetting('userconfig')].filter((path) => existsSync(path));
  const texts = files.map((path) => readFileSync(path, 'utf8'));
  return [...texts, `registry=${npmSetting('registry')}`, `cafile=${certificatesInside}`, ''].join('\n');
}

/** Certificates trusted by npm and Node.js here, including `NODE_EXTRA_CA_CERTS`. */
function certificates(): string {
  const cafile = npmSetting('cafile');
  const own = existsSync(cafile) ? [readFileSync(cafile, 'utf8')] : [];
  return [...tls.getCACertificates('default'), ...own, ''].join('\n');
}

/** `null` if it is not set. */
function npmSetting(name: string): string {
  return run('npm', ['config', 'get', name]).trim();
}

function makeBaseImage(builderDir: string, image: BaseImage, log: Log): void {
  const { name, architecture, without = [], withNode, withNpm, withApt } = image;
  const packages = architecture === hostArchitecture() ? image.packages : { ...image.packages, architecture };
  log(`making ${name} of Debian packages`);
  const [work, context, store] = ['work', 'context', 'store'].map((each) => join(builderDir, each)) as [
    string,
    string,
    string,
  ];
  for (const folder of [work, context, store]) mkdirSync(folder, { recursive: true });
  unpackPackageSet(context, packages, '/etc/apt');
  const root = join(context, packageSetFiles.root);
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/sbin/nologin\n');
  writeFileSync(join(root, 'etc/group'), 'root:x:0:\n');
  for (const path of without) rmSync(join(root, path), { recursive: true, force: true });
  if (withNode) addNode(join(root, 'usr/local'), architecture);
  if (withNpm) addNpm(join(root, 'usr/local'));
  if (withApt) addPackageDatabase(context);
  writeFileSync(join(context, 'Dockerfile'), `FROM scratch\nCOPY ${packageSetFiles.root} /\n`);
  runBuildah(builderDir, { store, work, context }, [
    ...storage,
    'bud',
    '--layers=false',
    '--timestamp',
    '0',
    '--arch',
    architecture,
    '--tag',
    name,
    insideFolders.context,
  ]);
  for (const folder of [work, context]) rmSync(folder, { recursive: true });
}

/** Records the packages as dpkg would have done. @param dir as made by `unpackPackageSet` */
function addPackageDatabase(dir: string): void {
  const lines = readFileSync(join(dir, packageSetFiles.list), 'utf8').trimEnd().split('\n');
  const entries = lines.map((line) => {
    const [name, version, architecture] = line.split('_');
    return `Package: ${name}\nStatus: install ok installed\nVersion: ${version}\nArchitecture: ${architecture}\n`;
  });
  const folder = join(dir, packageSetFiles.root, 'var/lib/dpkg');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'status'), entries.join('\n'));
}

/** Puts Node.js at its path in the official image; for another processor, that of the npm package `node` in this version. */
function addNode(prefix: string, architecture: Architecture): void {
  const node = join(prefix, 'bin/node');
  mkdirSync(join(prefix, 'bin'), { recursive: true });
  if (architecture === hostArchitecture()) cpSync(realpathSync(process.execPath), node);
  else {
    const cpu = architectures[architecture];
    const [name, dir] = [`node-linux-${cpu}`, join(prefix, 'npm')];
    // Forced, since npm refuses a package for another processor, which is only unpacked here.
    const flags = ['--force', '--ignore-scripts', '--no-audit', '--no-fund', '--prefix', dir];
    run('npm', ['install', ...flags, `${name}@${process.versions.node}`], { timeoutMs: 300_000 });
    renameSync(join(dir, 'node_modules', name, 'bin/node'), node);
    rmSync(dir, { recursive: true });
  }
  chmodSync(node, 0o755);
}

/** Puts npm at its path in the official image. */
function addNpm(prefix: string): void {
  const flags = ['--global', '--ignore-scripts', '--no-audit', '--no-fund', '--prefix', prefix];
  run('npm', ['install', ...flags, `npm@${npmVersion}`], { timeoutMs: 300_000 });
}
