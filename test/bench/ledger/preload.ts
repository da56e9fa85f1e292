/**
 * Loaded before the driver (`node --import`): counts what it does, and tells the parent process over IPC when asked. It
 * wraps what the driver gets from Node.js and from koffi, so it works with the program of any commit.
 */
import http from 'node:http';
import https from 'node:https';
import { Module, syncBuiltinESMExports } from 'node:module';
import { Socket } from 'node:net';
import { countFiles } from './count-files.ts';
import { countStatements } from './count-statements.ts';
import { type Counter, noCounts, type Reading } from './counted.ts';

const counts = noCounts();
const count = (what: Counter, by = 1) => {
  counts[what] += by;
};

countFiles(count);
countStatements(count);
countRequests();
countSocketBytes();
countLibraryCalls();
process.on('message', () => process.send?.(read()));
// It ends when the driver does.
process.channel?.unref();

function read(): Reading {
  const { user, system } = process.cpuUsage();
  return { counts, cpuMs: (user + system) / 1_000 };
}

function countRequests(): void {
  for (const module of [http, https]) {
    const request = module.request as (...args: unknown[]) => http.ClientRequest;
    module.request = ((...args: unknown[]) => {
      count('apiRequests');
      return request(...args);
    }) as typeof module.request;
  }
  syncBuiltinESMExports();
}

/** HTTP/2 is not among them: its sockets are read by native code. */
function countSocketBytes(): void {
  const push = Socket.prototype.push;
  Socket.prototype.push = function (...args) {
    const [chunk] = args as [Buffer | null];
    if (chunk !== null) count('socketBytes', chunk.length);
    return push.apply(this, args);
  };
}

type LibraryFunction = ((...args: unknown[]) => number) & { async(...args: unknown[]): void };
type Load = (...args: unknown[]) => { func(...args: unknown[]): LibraryFunction };

/** koffi is in the program's file, its native part beside it. */
function countLibraryCalls(): void {
  const extensions = (Module as unknown as { _extensions: Record<string, (module: NodeModule, file: string) => void> })
    ._extensions;
  const loadNative = extensions['.node']!;
  extensions['.node'] = (module, file) => {
    loadNative(module, file);
    if (!file.endsWith('koffi.node')) return;
    const { load } = module.exports as { load: Load };
    const countedLoad: Load = (...args) => {
      const library = load(...args);
      return { func: (...declaration) => countedFunction(library.func(...declaration), String(declaration[0])) };
    };
    module.exports = { ...module.exports, load: countedLoad };
  };
}

/** Linux `AF_NETLINK`, and the size of a `struct nlmsghdr`. */
const netlinkFamily = 16;
const headerBytes = 16;
/** Descriptors of netlink sockets. Others send packets. */
const netlinkSockets = new Set<unknown>();

function countedFunction(call: LibraryFunction, declaration: string): LibraryFunction {
  const name = /(\w+)\(/.exec(declaration)?.[1];
  const note = ([first, second]: unknown[], result?: number) => {
    if (name === 'socket' && first === netlinkFamily) netlinkSockets.add(result);
    if (name === 'socket' && first !== netlinkFamily) netlinkSockets.delete(result);
    if (name === 'send' && netlinkSockets.has(first)) count('netlinkRequests', messagesIn(second as Buffer));
    if (name === 'recv' && netlinkSockets.has(first) && result !== undefined)
      count('netlinkBytes', Math.max(0, result));
  };
  const wrapped = (...args: unknown[]) => {
    const result = call(...args);
    count('libraryCalls');
    note(args, result);
    return result;
  };
  const async = (...args: unknown[]) => {
    const callback = args.at(-1) as (error: Error | null, result: number) => void;
    call.async(...args.slice(0, -1), (error: Error | null, result: number) => {
      count('threadTrips');
      note(args, result);
      callback(error, result);
    });
  };
  return Object.assign(wrapped, { async });
}

/** Each begins with its length, and the next one at a multiple of four octets. */
function messagesIn(bytes: Buffer): number {
  let messages = 0;
  for (let at = 0; at + headerBytes <= bytes.length; messages++) {
    at += Math.max(headerBytes, (bytes.readUInt32LE(at) + 3) & ~3);
  }
  return messages;
}
