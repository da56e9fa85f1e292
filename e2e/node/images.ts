import { readFileSync } from 'node:fs';
import { run } from '../../scripts/packages/run.ts';
import { encodeOciArchive, type ImageContent } from './oci-image.ts';
import type { TarEntry } from './tar.ts';

/** No registry serves these names: the images always come from the archive made here. */
export const busyboxImage = 'localhost/netdra/busybox:1';
export const pauseImage = 'localhost/netdra/pause:1';

/**
 * The two images of the suite as one OCI archive, both made of busybox: one with its commands as links, whose
 * containers run a shell, and one that does nothing until SIGTERM, for the sandbox.
 * @param busybox path of a statically linked busybox
 */
export function makeImageArchive(busybox: string): Buffer {
  const applets = run(busybox, ['--list'])
    .split('\n')
    .filter((name) => name !== '' && name !== 'busybox');
  const program = readFileSync(busybox);
  return encodeOciArchive([
    { name: busyboxImage, files: rootFiles(program, applets), cmd: ['sh'] },
    pauseContent(program),
  ]);
}

/** The pause image alone. */
export function makePauseArchive(busybox: string): Buffer {
  return encodeOciArchive([pauseContent(readFileSync(busybox))]);
}

function pauseContent(busybox: Buffer): ImageContent {
  return {
    name: pauseImage,
    files: rootFiles(busybox, ['sh', 'sleep']),
    // `wait` returns when a signal arrives; a `sleep` in the foreground would not.
    entrypoint: ['sh', '-c', 'trap "exit 0" TERM INT; while :; do sleep 3600 & wait $!; done'],
  };
}

function rootFiles(busybox: Buffer, commands: readonly string[]): TarEntry[] {
  const directories = ['bin', 'dev', 'etc', 'proc', 'root', 'run', 'sys', 'var'];
  return [
    ...directories.map((path): TarEntry => ({ type: 'directory', path })),
    { type: 'directory', path: 'tmp', mode: 0o1777 },
    { type: 'file', path: 'bin/busybox', mode: 0o755, data: busybox },
    ...commands.map((name): TarEntry => ({ type: 'symlink', path: `bin/${name}`, target: 'busybox' })),
    { type: 'file', path: 'etc/passwd', data: Buffer.from('root:x:0:0:root:/root:/bin/sh\n') },
    { type: 'file', path: 'etc/group', data: Buffer.from('root:x:0:\n') },
    // As in most distributions' images: mounts below /var/run end up in /run.
    { type: 'symlink', path: 'var/run', target: '/run' },
  ];
}
