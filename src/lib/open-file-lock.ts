import koffi from 'koffi';

/** Linux `F_OFD_SETLK`, `F_WRLCK`, `F_UNLCK`, `SEEK_SET`. Source: fcntl(2). */
const setOpenFileLock = 37;
const lockTypes = { write: 1, unlock: 2 };
const seekSet = 0;

/**
 * Locks one byte of a file for the open file description, without waiting. The kernel releases the lock when the last
 * descriptor of that description is closed, however the process ends. The byte need not be within the file.
 * @returns `false` if another open file description holds it, of this process or of another one
 * @throws Error with the errno
 */
export function tryLockByte(descriptor: number, offset: number): boolean {
  return setLock(descriptor, lockTypes.write, offset);
}

/** @throws Error with the errno */
export function unlockByte(descriptor: number, offset: number): void {
  setLock(descriptor, lockTypes.unlock, offset);
}

/** `struct flock` of 64-bit Linux, in 32-bit words: type and whence, padding, start, length, pid (0 for this kind of lock). */
const lock = new Uint32Array(8);
const word = { typeAndWhence: 0, start: 2, length: 4 };

function setLock(descriptor: number, type: number, offset: number): boolean {
  lock[word.typeAndWhence] = type | (seekSet << 16);
  lock[word.start] = offset;
  lock[word.start + 1] = Math.floor(offset / 2 ** 32);
  lock[word.length] = 1;
  if (loadFcntl()(descriptor, setOpenFileLock, lock) === 0) return true;
  const code = koffi.errno();
  if (code === koffi.os.errno.EAGAIN || code === koffi.os.errno.EACCES) return false;
  throw new Error(`fcntl failed with errno ${code}`);
}

let resolved: ((descriptor: number, command: number, lock: Uint32Array) => number) | undefined;

/**
 * Resolved once: each koffi lookup costs memory for good. The third argument of fcntl(2) is variadic; declaring it
 * fixed makes no difference on x86-64 and arm64, and koffi examines the types of a variadic call each time.
 */
function loadFcntl() {
  resolved ??= koffi.load(null).func('int fcntl(int fd, int cmd, void *lock)');
  return resolved;
}
