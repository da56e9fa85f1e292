import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { ensureProgram } from '../../scripts/packages/debian-programs.ts';

/** A terminal of tmux with a shell, that no user's tmux knows. */
export class TestTerminal implements Disposable {
  readonly #run: (...args: string[]) => string;

  /** @param socketPath of its server */
  constructor(socketPath: string, { columns, rows }: { columns: number; rows: number }) {
    const tmux = join(ensureProgram('tmux', cacheFolder(process.env), process.env, console.error), 'tmux');
    const env = { ...process.env, LC_ALL: 'C.UTF-8', PS1: '$ ' };
    this.#run = (...args) =>
      execFileSync(tmux, ['-f', '/dev/null', '-S', socketPath, ...args], { encoding: 'utf8', env });
    this.#run('new-session', '-d', '-x', `${columns}`, '-y', `${rows}`, 'sh');
  }

  /** @param keys as `tmux send-keys` takes them */
  type(...keys: string[]): void {
    this.#run('send-keys', ...keys);
  }

  /** The lines that it shows, without blanks at their ends. */
  lines(): string[] {
    return this.#run('capture-pane', '-p').split('\n');
  }

  [Symbol.dispose](): void {
    this.#run('kill-server');
  }
}
