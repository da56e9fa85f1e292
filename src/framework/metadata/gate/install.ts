import { accessSync, constants, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { errnoCode } from '../../../lib/errors.ts';
import { replaceFile } from '../../../lib/replace-file.ts';
import { GateError } from './errors.ts';

const programName = 'netdra-gate';
const programMode = 0o755;
/** Age after which a temporary file belongs to a killed instance, ms: no installation takes that long. */
const staleMs = 3_600_000;

/**
 * Returns the path at which `installGate` installs the program.
 * @param dataDir the driver's directory below the kubelet's `plugins`
 */
export function gateProgramPath(dataDir: string): string {
  return join(dataDir, 'bin', programName);
}

/** Returns the program's path in the image, or in a source tree, where `npm run build:programs` puts it. */
export function defaultGateProgram(): string {
  const inImage = fileURLToPath(new URL(`../bin/${programName}`, import.meta.url));
  return existsSync(inImage)
    ? inImage
    : fileURLToPath(new URL(`../../../../dist/programs/${programName}`, import.meta.url));
}

/**
 * Installs `netdra-gate` in the driver's directory: the runtime runs the program on the host, where the image is not visible,
 * even while the driver is not running. Does not replace an identical program, since containers may be waiting in it.
 * @param options.from path of the program to install
 * @param options.dataDir the driver's directory below the kubelet's `plugins`, by its path on the host
 * @returns the installed path
 * @throws GateError
 */
export async function installGate({ from, dataDir }: { from: string; dataDir: string }): Promise<string> {
  const program = readProgram(from);
  const path = gateProgramPath(dataDir);
  try {
    mkdirSync(join(dataDir, 'bin'), { recursive: true, mode: programMode });
    removeStale(join(dataDir, 'bin'));
    // Replaced atomically, since it may be running.
    if (!isInstalled(path, program)) replaceFile(path, program, programMode);
  } catch (cause) {
    throw new GateError('gate-not-installed', `cannot install ${programName} as ${path}`, {
      cause,
      path,
      hint: 'make the directory of the driver in the plugins directory of the kubelet writable, or start the driver with --start-gate=file',
    });
  }
  checkExecutable(path);
  return path;
}

function readProgram(from: string): Buffer {
  try {
    return readFileSync(from);
  } catch (cause) {
    throw new GateError('gate-program-missing', `cannot read the start gate program ${from}`, {
      cause,
      path: from,
      hint: 'build it with `npm run build:programs`, name it with --gate-program, or do without: --start-gate=file',
    });
  }
}

function isInstalled(path: string, program: Buffer): boolean {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat?.isFile() === true && (stat.mode & 0o777) === programMode && readFileSync(path).equals(program);
}

function removeStale(dir: string): void {
  for (const name of readdirSync(dir)) {
    const path = join(dir, name);
    if (!name.startsWith(`.${programName}.`) || !name.endsWith('.tmp')) continue;
    if ((statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? Date.now()) < Date.now() - staleMs)
      rmSync(path, { force: true });
  }
}

/** Checks that the kernel would run the program: a file system mounted with `noexec` runs nothing. */
function checkExecutable(path: string): void {
  try {
    accessSync(path, constants.X_OK);
  } catch (cause) {
    const isMount = errnoCode(cause) === 'EACCES';
    throw new GateError('gate-not-executable', `the node cannot execute ${path}`, {
      cause,
      path,
      hint: isMount
        ? 'its file system is mounted with noexec: mount it without noexec, or start the driver with --start-gate=file'
        : 'start the driver with --start-gate=file',
    });
  }
}
