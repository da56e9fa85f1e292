import { chmod, lstat, mkdir, readdir, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { errnoCode } from '../errors.ts';
import { KubeletPluginError } from './errors.ts';

/**
 * Prepares a path for a socket: creates its directory if it is missing (0750), and removes a socket without a listener.
 * Anything else there is left alone.
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
    const hint = 'look what it is, and remove it';
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

/** Removes sockets that killed instances left behind. A socket with a listener stays. */
export async function removeDeadSockets(dir: string, isOurs: (name: string) => boolean): Promise<string[]> {
  const removed: string[] = [];
  for (const name of await readdir(dir).catch(() => [])) {
    const path = join(dir, name);
    if (!isOurs(name) || (await lstat(path).catch(() => undefined))?.isSocket() !== true) continue;
    if (await isListening(path)) continue;
    await rm(path, { force: true });
    removed.push(path);
  }
  return removed;
}

/** Whether a connection is accepted, or at least not refused: then there is a process behind the socket. */
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
