import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Architecture, gatePath, programPath } from '../../deploy/image/layout.ts';
import packageInfo from '../../package.json' with { type: 'json' };
import { fetchDebianPackages, packageFolder } from '../../scripts/packages/debian-packages.ts';
import { run } from '../../scripts/packages/run.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import { hostArchitecture } from './driver-image.ts';

const emulators = { name: 'qemu-user-static', suite: 'bookworm' };
const emulatorNames: Record<Architecture, string> = { amd64: 'qemu-x86_64-static', arm64: 'qemu-aarch64-static' };

interface Start {
  args: string[];
  exitCode: number;
  /** How its output begins. */
  output: string;
}

/**
 * Starts the programs of an image in its own root file system, by QEMU's user emulation if it is for another processor.
 * Needs root, and the network for the emulator.
 * @param layout folder with the image as OCI layout
 * @throws NetdraError `image-does-not-start`; CommandError, PackageError
 */
export function checkImageStarts(
  cacheDir: string,
  layout: string,
  architecture: Architecture,
  log: (line: string) => void,
): void {
  const root = mkdtempSync(join(tmpdir(), 'netdra-image-'));
  try {
    const { config, layers } = readLayout(layout);
    for (const layer of layers) run('tar', ['--extract', '--file', layer, '--directory', root]);
    const prefix = [root];
    if (architecture !== hostArchitecture()) {
      fetchDebianPackages(cacheDir, [emulators], log);
      const program = join(packageFolder(cacheDir, emulators), 'usr/bin', emulatorNames[architecture]);
      copyFileSync(program, join(root, 'emulator'));
      prefix.push('/emulator');
    }
    const [node = '', ...flags] = config.Entrypoint;
    const starts: Start[] = [
      { args: [node, ...flags, '--version'], exitCode: 0, output: `${packageInfo.version}\n` },
      // It opens a netlink socket, by which both native packages are loaded.
      { args: [node, `/${programPath}`, 'claims'], exitCode: 1, output: 'netdra: no driver has stored its state' },
      { args: [`/${gatePath}`], exitCode: 2, output: 'netdra-gate: ' },
    ];
    for (const start of starts) checkStart(prefix, start, architecture);
    log(`the programs for ${architecture} start`);
  } finally {
    rmSync(root, { recursive: true });
  }
}

function checkStart(prefix: string[], { args, exitCode, output }: Start, architecture: Architecture): void {
  const env = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' };
  const ended = spawnSync('chroot', [...prefix, ...args], { encoding: 'utf8', env, timeout: 120_000 });
  const said = ended.error?.message ?? ended.stdout + ended.stderr;
  if (ended.status === exitCode && said.startsWith(output)) return;
  const program = args.find((arg) => arg.startsWith('/opt')) ?? args[0];
  throw new NetdraError('image-does-not-start', `${program} for ${architecture} ended with ${ended.status}: ${said}`, {
    hint: 'start it in its root file system by hand; --arch leaves a processor out of a release',
  });
}

/** Source: OCI Image Format Specification, "Image Layout" and "Image Manifest". */
function readLayout(layout: string): { config: { Entrypoint: string[] }; layers: string[] } {
  const blob = (digest: string) => join(layout, 'blobs', digest.replace(':', '/'));
  const read = (path: string) => JSON.parse(readFileSync(path, 'utf8'));
  const manifest = read(blob(read(join(layout, 'index.json')).manifests[0].digest));
  const { config } = read(blob(manifest.config.digest));
  return { config, layers: manifest.layers.map(({ digest }: { digest: string }) => blob(digest)) };
}
