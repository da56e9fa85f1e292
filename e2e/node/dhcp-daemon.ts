import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { locateTools } from './tools.ts';

/** The daemon of the CNI plugin dhcp, as a service of the node. */
export class DhcpDaemon implements AsyncDisposable {
  readonly socketPath: string;
  readonly #process: ChildProcess;

  private constructor(socketPath: string) {
    this.socketPath = socketPath;
    const program = join(locateTools(process.env).cniBinDir, 'dhcp');
    this.#process = spawn(program, ['daemon', '-socketpath', socketPath], { stdio: 'inherit' });
  }

  /** @param dir folder of its socket */
  static async start(dir: string): Promise<DhcpDaemon> {
    await using stack = new AsyncDisposableStack();
    const daemon = stack.use(new DhcpDaemon(join(dir, 'dhcp.sock')));
    await expect.poll(() => existsSync(daemon.socketPath)).toBe(true);
    stack.move();
    return daemon;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exit = once(this.#process, 'exit');
    this.#process.kill();
    await exit;
    rmSync(this.socketPath, { force: true });
  }
}
