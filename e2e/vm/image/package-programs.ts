import { join } from 'node:path';

/** Debian's library folder for the only architecture for which there is an image. */
const libraryFolder = 'usr/lib/x86_64-linux-gnu';

/**
 * How to start a program from a folder with unpacked packages, with the loader and the libraries of that folder, so
 * that it also runs on a machine with another C library.
 * @param path below the folder, e.g. `usr/bin/kmod`
 * @param name passed to the program as its own name
 * @returns the program to start and its first arguments
 */
export function packagedProgram(root: string, path: string, name = path): [string, ...string[]] {
  const libraries = join(root, libraryFolder);
  const loader = join(libraries, 'ld-linux-x86-64.so.2');
  return [loader, '--argv0', name, '--library-path', libraries, join(root, path)];
}
