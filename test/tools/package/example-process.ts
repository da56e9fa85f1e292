import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makePackedApp } from './packed-app.ts';

export const exampleDir = fileURLToPath(new URL('../../../examples/driver/', import.meta.url));
export const exampleDriver = 'scratch.example.com';

/** A project with netdra installed and the example driver in it. @returns the driver's file */
export function installExample(dir: string): string {
  const main = join(makePackedApp(dir).dir, 'driver.ts');
  copyFileSync(join(exampleDir, 'driver.ts'), main);
  return main;
}

/** The example driver, running. */
export class ExampleProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown>;
  /** All that it wrote. */
  output = '';

  constructor(main: string, env: NodeJS.ProcessEnv) {
    this.#child = spawn(process.execPath, [main], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    this.#exit = once(this.#child, 'exit');
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text) => {
        this.output += text;
      });
    }
  }

  /** @returns the exit code; `null` after SIGKILL */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) this.#child.kill(signal);
    await this.#exit;
    return this.#child.exitCode;
  }

  async [Symbol.asyncDispose]() {
    await this.stop('SIGKILL');
  }
}
