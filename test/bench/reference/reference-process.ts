import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { nodeEnv, nodeFlags, programPath } from '../../../deploy/image/layout.ts';
import { DraClient } from '../../doubles/kubelet-dra-client.ts';
import { serviceAccountDir } from '../lab.ts';

const serverPath = fileURLToPath(new URL('server.ts', import.meta.url));

export interface ReferenceOptions {
  imageDir: string;
  /** For its socket. */
  dir: string;
  /** Of the API server. */
  apiUrl: string;
}

/** The process of `server.ts`, bundled and started like the driver, and a connection to it. */
export class ReferenceProcess implements AsyncDisposable {
  readonly dra: DraClient;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, dra: DraClient) {
    this.#child = child;
    this.dra = dra;
  }

  static async start({ imageDir, dir, apiUrl }: ReferenceOptions): Promise<ReferenceProcess> {
    const grpcPath = join(dir, 'reference.sock');
    // Beside the driver: it reads the same contracts.
    const program = join(imageDir, dirname(programPath), 'reference.mjs');
    await build({
      ...{ entryPoints: [serverPath], outfile: program, bundle: true, minifyWhitespace: true },
      ...{ platform: 'node', format: 'esm', logLevel: 'error' },
      banner: { js: "import { createRequire } from 'node:module';\nconst require = createRequire(import.meta.url);" },
    });
    const child = spawn(process.execPath, [...nodeFlags, program, grpcPath, apiUrl, serviceAccountDir], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, ...nodeEnv(imageDir) },
    });
    const ended = once(child, 'exit').then(() => {
      throw new Error('the reference server has ended');
    });
    ended.catch(() => undefined);
    await Promise.race([once(child.stdout!, 'data'), ended]);
    return new ReferenceProcess(child, new DraClient(grpcPath));
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error('the reference server was not started');
    return this.#child.pid;
  }

  async [Symbol.asyncDispose]() {
    this.dra[Symbol.dispose]();
    if (this.#child.exitCode !== null) return;
    this.#child.kill();
    await once(this.#child, 'exit');
  }
}
