import { join } from 'node:path';

/** Where Debian has the libraries of the only machine that there is an image for. */
const libraryFolder = 'usr/lib/x86_64-linux-gnu';

/**
 * How to start a program from a folder that packages were unpacked into, with the loader and the libraries of that
 * folder: it runs on a machine with another C library too.
 * @param path below the folder, e.g. `usr/bin/kmod`
 * @param name what the program is told it was called as
 * @returns the program to start and its first arguments
 */
export function packagedProgram(root: string, path: string, name = path): [string, ...string[]] {
  const libraries = join(root, libraryFolder);
  const loader = join(libraries, 'ld-linux-x86-64.so.2');
  return [loader, '--argv0', name, '--library-path', libraries, join(root, path)];
}
