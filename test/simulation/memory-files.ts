import { constants } from 'node:fs';

/** A file, or a directory with its entries. */
class FileNode {
  readonly inode: number;
  readonly entries: Map<string, FileNode> | undefined;
  content = Buffer.alloc(0);
  /** The descriptor that has locked it, by byte. */
  readonly locks = new Map<number, number>();
  modifiedMs = 0;
  mode: number;
  isRemoved = false;

  constructor(inode: number, isDirectory: boolean, mode = isDirectory ? 0o755 : 0o644) {
    this.inode = inode;
    this.mode = mode;
    this.entries = isDirectory ? new Map() : undefined;
  }

  isDirectory = (): boolean => this.entries !== undefined;

  stat() {
    const { inode, content, modifiedMs, isDirectory } = this;
    const of = { isDirectory, isFile: () => !isDirectory(), isSymbolicLink: () => false };
    return { ino: inode, size: content.length, mtimeMs: modifiedMs, ...of };
  }

  remove(): void {
    this.isRemoved = true;
    for (const each of this.entries?.values() ?? []) each.remove();
  }
}

/** Where a path leads to. */
interface FilePlace {
  entries: Map<string, FileNode>;
  name: string;
  node: FileNode | undefined;
}

/** No real descriptor has such a number. */
const firstDescriptor = 1_000_000_000;
const inDescriptors = '/proc/self/fd/';
const firstInDescriptor = `${inDescriptors}100`;

// biome-ignore lint/suspicious/noExplicitAny: each has other parameters.
type Call = (...args: any[]) => unknown;

/**
 * The calls of `node:fs` that the driver makes, on files in memory below one directory that does not exist: each call on
 * a real file takes the kernel and Node.js several times as long. A removed file or directory lives while it is open.
 */
export class MemoryFiles {
  readonly root: string;
  readonly #open = new Map<number, FileNode>();
  #tree = new FileNode(1, true);
  #lastInode = 1;
  #nextDescriptor = firstDescriptor;

  constructor(root: string) {
    this.root = root;
  }

  /** Whether a path or descriptor belongs to these files. */
  owns(file: unknown): boolean {
    if (typeof file === 'number') return file >= firstDescriptor;
    return typeof file === 'string' && (file.startsWith(this.root) || file.startsWith(firstInDescriptor));
  }

  /** The content of a file, for checks, which read the same files again and again; `undefined` if the file does not exist. */
  textOf(path: string): string | undefined {
    return this.#find(path)?.node?.content.toString('utf8');
  }

  /** Inode of a file or directory; `undefined` if it does not exist. */
  inodeOf(path: string): number | undefined {
    return this.#find(path)?.node?.inode;
  }

  /** Permissions of a file or directory; `undefined` if it does not exist. */
  modeOf(path: string): number | undefined {
    return this.#find(path)?.node?.mode;
  }

  /** Removes all of them. */
  clear(): void {
    this.#tree = new FileNode(++this.#lastInode, true);
    this.#open.clear();
  }

  /** As fcntl(2) locks a byte for an open file description. */
  lockByte(descriptor: number, byte: number): boolean {
    const { locks } = this.#node(descriptor);
    if (!locks.has(byte)) locks.set(byte, descriptor);
    return locks.get(byte) === descriptor;
  }

  readonly calls: Readonly<Record<string, Call>> = {
    openSync: (path: string, flags: number | string, mode?: number) => {
      const isMade = flags === 'wx' || (flags === 'a+' && this.#find(path)?.node === undefined);
      const node = isMade ? this.#make(path, false, mode) : this.#node(path);
      if ((Number(flags) & constants.O_DIRECTORY) !== 0 && !node.isDirectory()) throw failure('ENOTDIR', path);
      this.#open.set(this.#nextDescriptor, node);
      return this.#nextDescriptor++;
    },
    closeSync: (descriptor: number) => {
      const locks = this.#open.get(descriptor)?.locks ?? new Map();
      for (const [byte, holder] of locks) if (holder === descriptor) locks.delete(byte);
      this.#open.delete(descriptor);
    },
    existsSync: (path: string) => this.#find(path)?.node !== undefined,
    fstatSync: (descriptor: number) => this.#node(descriptor).stat(),
    lstatSync: (path: string, options: object) => this.calls.statSync?.(path, options),
    statSync: (path: string, { throwIfNoEntry = true } = {}) =>
      throwIfNoEntry ? this.#node(path).stat() : this.#find(path)?.node?.stat(),
    readFileSync: (file: string | number) => this.#node(file).content.toString('utf8'),
    readSync: (descriptor: number, buffer: Buffer, offset: number, length: number, position: number) =>
      this.#node(descriptor).content.copy(buffer, offset, position, position + length),
    readdirSync: (path: string, { withFileTypes = false } = {}) => {
      const entries = [...(this.#node(path).entries ?? [])].sort(([one], [other]) => (one < other ? -1 : 1));
      return entries.map(([name, { isDirectory }]) => (withFileTypes ? { name, isDirectory } : name));
    },
    fchmodSync: (descriptor: number, mode: number) => {
      this.#node(descriptor).mode = mode;
    },
    utimesSync: (path: string, _accessed: number, modified: number) => {
      this.#node(path).modifiedMs = 1_000 * modified;
    },
    writeFileSync: (file: string | number, text: string) => {
      const isNew = typeof file === 'string' && this.#find(file)?.node === undefined;
      (isNew ? this.#make(file, false) : this.#node(file)).content = Buffer.from(text);
    },
    writeSync: (descriptor: number, buffer: Buffer, offset: number, length: number, position: number) => {
      const node = this.#node(descriptor);
      const missing = Math.max(0, position + length - node.content.length);
      if (missing > 0) node.content = Buffer.concat([node.content, Buffer.alloc(missing)]);
      return buffer.copy(node.content, position, offset, offset + length);
    },
    renameSync: (from: string, to: string) => {
      const target = this.#place(to);
      target.entries.set(target.name, this.#node(from));
      const { entries, name } = this.#place(from);
      entries.delete(name);
    },
    unlinkSync: (path: string) => this.#remove(path),
    rmdirSync: (path: string) => {
      if (this.#node(path).entries?.size !== 0) throw failure('ENOTEMPTY', path);
      this.#remove(path);
    },
    rmSync: (path: string, { force = false } = {}) => {
      if (!force || this.#find(path)?.node !== undefined) this.#remove(path);
    },
    mkdirSync: (path: string, { recursive = false, mode = 0o755 } = {}) => {
      if (!recursive) return void this.#make(path, true, mode);
      let first: string | undefined;
      for (let end = this.root.length; end !== path.length; ) {
        const next = path.indexOf('/', end + 1);
        end = next === -1 ? path.length : next;
        const made = path.slice(0, end);
        if (this.#find(made)?.node !== undefined) continue;
        this.#make(made, true, mode);
        first ??= made;
      }
      return first;
    },
  };

  /** @throws Error `ENOENT` */
  #node(file: string | number): FileNode {
    const node = typeof file === 'number' ? this.#open.get(file) : this.#find(file)?.node;
    if (node === undefined) throw failure('ENOENT', file);
    return node;
  }

  /** @throws Error `ENOENT` if its directory does not exist */
  #place(path: string): FilePlace {
    const place = this.#find(path);
    if (place === undefined) throw failure('ENOENT', path);
    return place;
  }

  #make(path: string, isDirectory: boolean, mode?: number): FileNode {
    const { entries, name, node: present } = this.#place(path);
    if (present !== undefined) throw failure('EEXIST', path);
    const node = new FileNode(++this.#lastInode, isDirectory, mode);
    entries.set(name, node);
    return node;
  }

  #remove(path: string): void {
    this.#node(path).remove();
    const { entries, name } = this.#place(path);
    entries.delete(name);
  }

  /** @returns `undefined` if its directory does not exist */
  #find(path: string): FilePlace | undefined {
    const isInDescriptor = path.startsWith(firstInDescriptor);
    let at = isInDescriptor ? path.indexOf('/', firstInDescriptor.length) + 1 : this.root.length + 1;
    let directory = isInDescriptor ? this.#open.get(Number(path.slice(inDescriptors.length, at - 1))) : this.#tree;
    for (let end = path.indexOf('/', at); end !== -1; end = path.indexOf('/', at)) {
      directory = directory?.entries?.get(path.slice(at, end));
      at = end + 1;
    }
    const name = path.slice(at);
    if (directory?.entries === undefined || directory.isRemoved) return undefined;
    return { entries: directory.entries, name, node: name === '' ? directory : directory.entries.get(name) };
  }
}

function failure(code: 'ENOENT' | 'ENOTDIR' | 'EEXIST' | 'ENOTEMPTY', file: string | number): Error {
  return Object.assign(new Error(`${code}: ${file}`), { code });
}
