import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { nodeEnv, nodeFlags, programPath } from '../../../deploy/image/layout.ts';
import { DraClient } from '../../doubles/kubelet-dra-client.ts';
import { serviceAccountDir } from '../lab.ts';

const serverPath = fileURLToPath(new URL('server.ts', import.meta.url));

export interface ReferenceOptions {
  imageDir: string;
  /** For its sockets. */
  dir: string;
  /** Of the API server. */
  apiUrl: string;
}

/** The process of `server.ts`, bundled and started like the driver, and connections to it. */
export class ReferenceProcess implements AsyncDisposable {
  readonly dra: DraClient;
  readonly #child: ChildProcess;
  readonly #echo: Socket;

  private constructor(child: ChildProcess, dra: DraClient, echo: Socket) {
    this.#child = child;
    this.dra = dra;
    this.#echo = echo;
  }

  static async start({ imageDir, dir, apiUrl }: ReferenceOptions): Promise<ReferenceProcess> {
    const [grpcPath, echoPath] = [join(dir, 'reference.sock'), join(dir, 'echo.sock')];
    // Beside the driver: it reads the same contracts.
    const program = join(imageDir, dirname(programPath), 'reference.mjs');
    await build({
      ...{ entryPoints: [serverPath], outfile: program, bundle: true, minifyWhitespace: true },
      ...{ platform: 'node', format: 'esm', logLevel: 'error' },
      banner: { js: "import { createRequire } from 'node:module';\nconst require = createRequire(import.meta.url);" },
    });
    const child = spawn(process.execPath, [...nodeFlags, program, grpcPath, echoPath, apiUrl, serviceAccountDir], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, ...nodeEnv(imageDir) },
    });
    const ended = once(child, 'exit').then(() => {
      throw new Error('the reference server has ended');
    });
    ended.catch(() => undefined);
    await Promise.race([once(child.stdout!, 'data'), ended]);
    const echo = connect(echoPath);
    await once(echo, 'connect');
    return new ReferenceProcess(child, new DraClient(grpcPath), echo);
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error('the reference server was not started');
    return this.#child.pid;
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
