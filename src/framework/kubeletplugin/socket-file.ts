import { chmod, lstat, mkdir, readdir, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { errnoCode } from '../../lib/errors.ts';
import { KubeletPluginError } from './errors.ts';

/**
 * Prepares a path for a socket: creates its directory if it is missing (0750), and removes a socket without a listener.
 * Leaves anything else there alone.
 * @throws KubeletPluginError `socket-unavailable` if the path is in use, or is not a socket
 */
export async function clearSocketPath(path: string): Promise<void> {
  const dir = dirname(path);
  // An existing directory keeps its mode; the mode of a new one does not depend on the umask.
  if ((await mkdir(dir, { recursive: true, mode: 0o750 })) !== undefined) await chmod(dir, 0o750);
  const stats = await lstat(path).catch((error) => {
    if (errnoCode(error) === 'ENOENT') return undefined;
    throw error;
  });
  if (stats === undefined) return;
  if (!stats.isSocket()) {
    const what = stats.isSymbolicLink() ? 'a symbolic link' : 'a file that is not a socket';
    const hint = 'check what this file is for, and remove it';
    throw new KubeletPluginError('socket-unavailable', `${path} is ${what}`, { path, hint });
  }
  if (await isListening(path)) {
    throw new KubeletPluginError('socket-unavailable', `another process listens on ${path}`, {
      path,
      retriable: true,
      hint: 'end the other instance first, or give each one the UID of its pod',
    });
  }
  await rm(path, { force: true });
}

/**
 * Removes the sockets of killed instances. A socket with a listener stays.
 * @returns `problems` has an error for each file that could not be checked or removed
 */
export async function removeDeadSockets(
  dir: string,
  isOurs: (name: string) => boolean,
): Promise<{ removed: string[]; problems: KubeletPluginError[] }> {
  const removed: string[] = [];
  const problems: KubeletPluginError[] = [];
  const attempt = async (path: string, task: () => Promise<void>) => {
    try {
      await task();
    } catch (cause) {
      // The file was removed meanwhile, or never existed.
      if (errnoCode(cause) === 'ENOENT') return;
      const message = `cannot look for sockets of killed instances at ${path}`;
      const hint =
        'check that path and its file system: the kubelet keeps trying to register a socket that nothing listens on';
      problems.push(new KubeletPluginError('socket-unavailable', message, { cause, path, retriable: true, hint }));
    }
  };
  const names: string[] = [];
  await attempt(dir, async () => void names.push(...(await readdir(dir))));
  for (const name of names.filter(isOurs)) {
    const path = join(dir, name);
    await attempt(path, async () => {
      if (!(await lstat(path)).isSocket() || (await isListening(path))) return;
      await rm(path);
      removed.push(path);
    });
  }
  return { removed, problems };
}

/** Returns whether a process listens on a socket: it accepts the connection, or at least does not refuse it. */
async function isListening(path: string): Promise<boolean> {
  return await new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', (error) => resolve(!['ECONNREFUSED', 'ENOENT'].includes(errnoCode(error) ?? '')));
  });
}
