import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { PassThrough, type Readable, type Writable } from 'node:stream';
import { type MachineOptions, machineCommand, monitor, type Port, ports, toMonitor } from './machine.ts';

/** The host's ends of the guest's ports. */
export interface GuestStreams {
  /** Input of the command, if it reads any. */
  stdin?: Readable;
  stdout: Writable;
  stderr: Writable;
  /** Absent: the guest's terminal is not shown. */
  terminal?: { input: Readable; output: Writable };
  /** Called with each line that the guest reports about itself: `ready`, `exit 3`. */
  onLine: (line: string) => void;
}

/** A running machine. Disposing ends it at once; it also ends with this process, in whatever way. */
export class VirtualMachine implements AsyncDisposable {
  readonly #runDir: string;
  readonly #servers: Server[];
  readonly #process: ChildProcess;
  /** Resolves when the machine is off and all its output was passed on. */
  readonly whenEnded: Promise<void>;
  #stderr = '';

  private constructor(runDir: string, servers: Server[], closings: Promise<unknown>[], process: ChildProcess) {
    this.#runDir = runDir;
    this.#servers = servers;
    this.#process = process;
    process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr += text;
    });
    this.whenEnded = once(process, 'close').then(async () => {
      await Promise.all(closings);
      for (const server of this.#servers) server.close();
    });
  }

  /** @throws the Node.js error if `setpriv` of util-linux cannot be started */
  static async start(options: MachineOptions, streams: GuestStreams): Promise<VirtualMachine> {
    const closings: Promise<unknown>[] = [];
    const commands = new PassThrough();
    commands.write(`${JSON.stringify({ execute: 'qmp_capabilities' })}\n`);
    const servers = await Promise.all(
      ([...ports, monitor] as const).map(async (port) => {
        const server = createServer((socket) => {
          closings.push(once(socket, 'close'));
          connect(port, socket, streams, commands);
        });
        await once(server.listen(join(options.runDir, port)), 'listening');
        return server;
      }),
    );
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', ...machineCommand(options)], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const machine = new VirtualMachine(options.runDir, servers, closings, child);
    await once(child, 'spawn');
    return machine;
  }

  /** Switches it off as in a power failure. */
  kill(): void {
    this.#process.kill('SIGKILL');
  }

  /** What the kernel has printed so far. */
  kernelLog(): string {
    const path = join(this.#runDir, 'kernel.log');
    return existsSync(path) ? readFileSync(path, 'utf8') : '';
  }

  /** Information about a machine that failed: QEMU's messages, and the end of the kernel's log. */
  report(): string {
    const lines = this.kernelLog().trimEnd().split(/\r?\n/).slice(-40);
    return [...this.#stderr.trimEnd().split('\n'), ...lines].filter((line) => line !== '').join('\n');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.kill();
    await this.whenEnded;
  }
}

/** @param commands for QEMU's monitor */
function connect(
  port: Port | typeof monitor,
  socket: Socket,
  { stdin, stdout, stderr, terminal, onLine }: GuestStreams,
  commands: PassThrough,
): void {
  // The guest is gone: any remaining output is irrelevant.
  socket.on('error', () => undefined);
  if (port === 'control') {
    createInterface(socket).on('line', (line) => {
      const command = toMonitor(line);
      if (command === undefined) onLine(line);
      else commands.write(`${JSON.stringify(command)}\n`);
    });
  } else if (port === monitor) {
    commands.pipe(socket);
    createInterface(socket).on('line', (answer) => {
      if ('error' in JSON.parse(answer)) stderr.write(`netdra: QEMU refuses a command: ${answer}\n`);
    });
  } else if (port === 'stdin') stdin?.pipe(socket);
  else if (port !== 'terminal') socket.pipe(port === 'stdout' ? stdout : stderr, { end: false });
  else if (terminal === undefined) socket.resume();
  else {
    socket.pipe(terminal.output, { end: false });
    terminal.input.pipe(socket, { end: false });
    // End-of-file for input that is not a terminal; closing the socket would cut off the guest's answer.
    terminal.input.on('end', () => socket.write('\u0004'));
  }
}
