import { constants } from 'node:fs';

/** A file, or a directory with its entries. */
interface Entry {
  readonly inode: number;
  readonly entries: Map<string, Entry> | undefined;
  content: Buffer;
  modifiedMs: number;
  isRemoved: boolean;
}

/** Where a path leads to. */
interface Place {
  parent: Entry;
  name: string;
  entry: Entry | undefined;
}

const ofDescriptors = '/proc/self/fd/';
/** No real descriptor has such a number. */
const firstDescriptor = 1_000_000_000;
const reasons = {
  ENOENT: 'no such file or directory',
  ENOTDIR: 'not a directory',
  EISDIR: 'illegal operation on a directory',
  EEXIST: 'file already exists',
  ENOTEMPTY: 'directory not empty',
  EBADF: 'bad file descriptor',
};

// biome-ignore lint/suspicious/noExplicitAny: each has other parameters.
type Call = (...args: any[]) => unknown;

/**
 * The calls of `node:fs` that the driver makes, on files in memory below one directory that does not exist: each call on
 * a real file takes the kernel and Node.js several times as long. Like in Linux, a file or directory lives while it is open.
 */
export class MemoryFiles {
  readonly root: string;
  readonly #open = new Map<number, Entry>();
  #tree = newEntry(1, true);
  #lastInode = 1;
  #nextDescriptor = firstDescriptor;

  constructor(root: string) {
    this.root = root;
  }

  /** Whether a path or descriptor belongs to these files. */
  owns(file: unknown): boolean {
    if (typeof file === 'number') return file >= firstDescriptor;
    if (typeof file !== 'string') return false;
    return file.startsWith(this.root) || (file.startsWith(ofDescriptors) && this.#start(file) !== undefined);
  }

  /** Removes all of them. */
  clear(): void {
    this.#tree = newEntry(++this.#lastInode, true);
    this.#open.clear();
  }

  readonly calls: Readonly<Record<string, Call>> = {
    openSync: (path: string, flags: number | string) => {
      const place = this.#place(path, 'open');
      if (place.entry !== undefined && flags === 'wx') throw failure('EEXIST', 'open', path);
      if (place.entry === undefined && typeof flags === 'number') throw failure('ENOENT', 'open', path);
      const isDirectory = place.entry?.entries !== undefined;
      if (typeof flags === 'number' && flags & constants.O_DIRECTORY && !isDirectory) {
        throw failure('ENOTDIR', 'open', path);
      }
      const descriptor = this.#nextDescriptor++;
      this.#open.set(descriptor, place.entry ?? this.#add(place, false));
      return descriptor;
    },
    closeSync: (descriptor: number) => {
      if (!this.#open.delete(descriptor)) throw failure('EBADF', 'close');
    },
    existsSync: (path: string) => this.#find(path)?.entry !== undefined,
    fstatSync: (descriptor: number) => statOf(this.#opened(descriptor, 'fstat')),
    lstatSync: (path: string, options?: { throwIfNoEntry?: boolean }) => this.#stat('lstat', path, options),
    statSync: (path: string, options?: { throwIfNoEntry?: boolean }) => this.#stat('stat', path, options),
    readFileSync: (file: string | number, encoding?: string) => {
      const { content } = this.#fileOf(file, 'read');
      return encoding === undefined ? Buffer.from(content) : content.toString('utf8');
    },
    readSync: (descriptor: number, buffer: Buffer, offset: number, length: number, position: number) =>
      this.#opened(descriptor, 'read').content.copy(buffer, offset, position, position + length),
    readdirSync: (path: string, options?: { withFileTypes?: boolean }) => {
      const { entries } = this.#existing(path, 'scandir');
      if (entries === undefined) throw failure('ENOTDIR', 'scandir', path);
      const names = [...entries.keys()].sort();
      if (options?.withFileTypes !== true) return names;
      return names.map((name) => ({ name, isDirectory: () => entries.get(name)?.entries !== undefined }));
    },
    fchmodSync: () => undefined,
    utimesSync: (path: string, _accessed: number, modified: number) => {
      this.#existing(path, 'utime').modifiedMs = 1_000 * modified;
    },
    writeFileSync: (file: string | number, text: string | Buffer) => {
      this.#fileOf(file, 'open', true).content = Buffer.from(text as string);
    },
    writeSync: (descriptor: number, buffer: Buffer, offset: number, length: number, position: number) => {
      const entry = this.#opened(descriptor, 'write');
      const missing = position + length - entry.content.length;
      if (missing > 0) entry.content = Buffer.concat([entry.content, Buffer.alloc(missing)]);
      return buffer.copy(entry.content, position, offset, offset + length);
    },
    renameSync: (from: string, to: string) => {
      const source = this.#place(from, 'rename');
      const target = this.#place(to, 'rename');
      if (source.entry === undefined) throw failure('ENOENT', 'rename', from);
      if (target.entry?.entries !== undefined) throw failure('ENOTEMPTY', 'rename', to);
      source.parent.entries?.delete(source.name);
      target.parent.entries?.set(target.name, source.entry);
    },
    unlinkSync: (path: string) => {
      const { entries } = this.#existing(path, 'unlink');
      if (entries !== undefined) throw failure('EISDIR', 'unlink', path);
      remove(this.#place(path, 'unlink'));
    },
    rmdirSync: (path: string) => {
      const { entries } = this.#existing(path, 'rmdir');
      if (entries === undefined) throw failure('ENOTDIR', 'rmdir', path);
      if (entries.size > 0) throw failure('ENOTEMPTY', 'rmdir', path);
      remove(this.#place(path, 'rmdir'));
    },
    rmSync: (path: string, { force, recursive }: { force?: boolean; recursive?: boolean } = {}) => {
      const place = this.#find(path);
      if (place?.entry === undefined) {
        if (force) return;
        throw failure('ENOENT', 'lstat', path);
      }
      if (place.entry.entries !== undefined && !recursive) throw failure('EISDIR', 'rm', path);
      remove(place);
    },
    mkdirSync: (path: string, { recursive }: { recursive?: boolean } = {}) => {
      if (recursive === true) return this.#makeAll(path);
      const place = this.#place(path, 'mkdir');
      if (place.entry !== undefined) throw failure('EEXIST', 'mkdir', path);
      this.#add(place, true);
      return undefined;
    },
  };

  #stat(call: string, path: string, { throwIfNoEntry = true } = {}) {
    const entry = this.#find(path)?.entry;
    if (entry === undefined && throwIfNoEntry) throw failure('ENOENT', call, path);
    return entry && statOf(entry);
  }

  #opened(descriptor: number, call: string): Entry {
    const entry = this.#open.get(descriptor);
    if (entry === undefined) throw failure('EBADF', call);
    return entry;
  }

  #fileOf(file: string | number, call: string, creates = false): Entry {
    if (typeof file === 'number') return this.#opened(file, call);
    const place = this.#place(file, 'open');
    const entry = place.entry ?? (creates ? this.#add(place, false) : undefined);
    if (entry === undefined) throw failure('ENOENT', 'open', file);
    if (entry.entries !== undefined) throw failure('EISDIR', call, file);
    return entry;
  }

  #existing(path: string, call: string): Entry {
    const { entry } = this.#place(path, call);
    if (entry === undefined) throw failure('ENOENT', call, path);
    return entry;
  }

  /** @throws Error `ENOENT` if a directory on the way does not exist */
  #place(path: string, call: string): Place {
    return this.#find(path) ?? fail('ENOENT', call, path);
  }

  /** The directory in which a path begins, and where the rest of the path does. */
  #start(path: string): { from: Entry; at: number } | undefined {
    if (path.startsWith(this.root)) return { from: this.#tree, at: this.root.length + 1 };
    const end = path.indexOf('/', ofDescriptors.length);
    const from = this.#open.get(Number(path.slice(ofDescriptors.length, end === -1 ? undefined : end)));
    return from && { from, at: end === -1 ? path.length + 1 : end + 1 };
  }

  /** @returns `undefined` if a directory on the way does not exist */
  #find(path: string): Place | undefined {
    const start = this.#start(path);
    if (start === undefined) return undefined;
    let parent = start.from;
    let { at } = start;
    if (at > path.length) return { parent, name: '.', entry: parent };
    for (let end = path.indexOf('/', at); end !== -1; end = path.indexOf('/', at)) {
      const next = parent.entries?.get(path.slice(at, end));
      if (next === undefined) return undefined;
      parent = next;
      at = end + 1;
    }
    const name = path.slice(at);
    return parent.isRemoved || parent.entries === undefined
      ? undefined
      : { parent, name, entry: parent.entries.get(name) };
  }

  #add({ parent, name }: Place, isDirectory: boolean): Entry {
    const entry = newEntry(++this.#lastInode, isDirectory);
    parent.entries?.set(name, entry);
    return entry;
  }

  /** @returns the first directory that it has created */
  #makeAll(path: string): string | undefined {
    let first: string | undefined;
    const names = path.slice(this.root.length + 1).split('/');
    let made = this.root;
    for (const name of names) {
      made = `${made}/${name}`;
      const place = this.#place(made, 'mkdir');
      if (place.entry !== undefined) continue;
      this.#add(place, true);
      first ??= made;
    }
    return first;
  }
}

function newEntry(inode: number, isDirectory: boolean): Entry {
  const entries = isDirectory ? new Map<string, Entry>() : undefined;
  return { inode, entries, content: Buffer.alloc(0), modifiedMs: 0, isRemoved: false };
}

function remove({ parent, name, entry }: Place): void {
  parent.entries?.delete(name);
  const gone = [entry];
  for (let each = gone.pop(); each !== undefined; each = gone.pop()) {
    each.isRemoved = true;
    gone.push(...(each.entries?.values() ?? []));
  }
}

function statOf({ inode, content, entries, modifiedMs }: Entry) {
  return {
    ino: inode,
    size: content.length,
    mtimeMs: modifiedMs,
    isFile: () => entries === undefined,
    isDirectory: () => entries !== undefined,
    isSymbolicLink: () => false,
  };
}

function failure(code: keyof typeof reasons, call: string, path?: string): Error {
  const where = path === undefined ? call : `${call} '${path}'`;
  return Object.assign(new Error(`${code}: ${reasons[code]}, ${where}`), { code, syscall: call });
}

function fail(...error: Parameters<typeof failure>): never {
  throw failure(...error);
}
