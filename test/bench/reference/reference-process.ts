import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DraClient } from '../../doubles/kubelet-dra-client.ts';

const serverPath = fileURLToPath(new URL('server.ts', import.meta.url));

/** The process of `server.ts`, and connections to it. */
export class ReferenceProcess implements AsyncDisposable {
  readonly dra: DraClient;
  readonly #child: ChildProcess;
  readonly #echo: Socket;

  private constructor(child: ChildProcess, dra: DraClient, echo: Socket) {
    this.#child = child;
    this.dra = dra;
    this.#echo = echo;
  }

  /** @param dir for its sockets */
  static async start(dir: string, apiPort: number): Promise<ReferenceProcess> {
    const [grpcPath, echoPath] = [join(dir, 'reference.sock'), join(dir, 'echo.sock')];
    const child = spawn(
      process.execPath,
      [
        serverPath,
        grpcPath,
        echoPath,
        `https://127.0.0.1:${apiPort}`,
        '/var/run/secrets/kubernetes.io/serviceaccount/ca.crt',
      ],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    const ended = once(child, 'exit').then(() => {
      throw new Error('the reference server has ended');
    });
    ended.catch(() => undefined);
    await Promise.race([once(child.stdout!, 'data'), ended]);
    const echo = connect(echoPath);
    await once(echo, 'connect');
    return new ReferenceProcess(child, new DraClient(grpcPath), echo);
  }

  /** Round trip over a unix socket. */
  async echo(bytes: Buffer): Promise<void> {
    const answered = once(this.#echo, 'data');
    this.#echo.write(bytes);
    await answered;
  }

  async [Symbol.asyncDispose]() {
    this.dra[Symbol.dispose]();
    this.#echo.destroy();
    if (this.#child.exitCode !== null) return;
    this.#child.kill();
    await once(this.#child, 'exit');
  }
}
