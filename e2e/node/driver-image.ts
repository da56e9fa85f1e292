import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, realpathSync } from 'node:fs';
import { join, relative } from 'node:path';
import { nodeEnv, nodeFlags, programPath } from '../../deploy/image/layout.ts';
import { encodeOciArchive } from './oci-image.ts';
import type { TarEntry } from './tar.ts';

export const driverImage = 'localhost/netdra/driver:test';

/**
 * The driver's image as an OCI archive: what `npm run bundle` makes, the program `node` that runs this, and the
 * libraries that it needs. That is what the Dockerfile puts together, less what its base image has besides these.
 * @param filesDir as `makeImageFiles` leaves it
 */
export function makeDriverArchive(filesDir: string): Buffer {
  const node = realpathSync(process.execPath);
  const ours = readdirSync(filesDir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path): TarEntry => ({ type: 'file', path: relative(filesDir, path), data: readFileSync(path) }));
  const files: TarEntry[] = [
    ...ours,
    { type: 'file', path: 'usr/local/bin/node', mode: 0o755, data: readFileSync(node) },
    ...librariesOf(node).map((path): TarEntry => {
      return { type: 'file', path: path.slice(1), mode: 0o755, data: readFileSync(path) };
    }),
    { type: 'file', path: 'etc/passwd', data: Buffer.from('root:x:0:0:root:/root:/sbin/nologin\n') },
    { type: 'directory', path: 'run' },
    { type: 'symlink', path: 'var/run', target: '/run' },
  ];
  const folders = new Set(files.flatMap(({ path }) => parentsOf(path)));
  const directories = [...folders].sort().map((path): TarEntry => ({ type: 'directory', path }));
  return encodeOciArchive([
    {
      name: driverImage,
      files: [...directories, ...files.filter(({ path }) => !folders.has(path))],
      entrypoint: ['/usr/local/bin/node', ...nodeFlags, `/${programPath}`],
      cmd: ['run'],
      env: Object.entries(nodeEnv()).map(([name, value]) => `${name}=${value}`),
    },
  ]);
}

/** What the dynamic linker would load, itself included; by the paths under which it looks. */
function librariesOf(program: string): string[] {
  // What ldd does, which not every machine has.
  const lines = execFileSync(program, { env: { LD_TRACE_LOADED_OBJECTS: '1' } })
    .toString()
    .split('\n');
  return lines.flatMap((line) => /(?:=> )?(\/\S+) \(0x/.exec(line)?.[1] ?? []);
}

function parentsOf(path: string): string[] {
  const parts = path.split('/').slice(0, -1);
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'));
}
