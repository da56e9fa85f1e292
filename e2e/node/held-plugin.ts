import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { listProcesses } from './host-state.ts';

export type CniCommand = 'ADD' | 'DEL';

/**
 * A CNI plugin, a shell script, that a test can make wait or fail in a command. Called for addresses
 * (`ipam`), the VF is already in the pod; called for a network (`attach: cni`), it is still on the host.
 */
export class HeldPlugin implements Disposable {
  /** For `cniBinDirs` of the driver. */
  readonly binDir: string;
  /** The type to use in a network or `ipam`. */
  readonly type = 'held';
  readonly #dir: string;

  /** @param delegate path of the plugin that does the work; absent: ADD returns the address 198.18.9.1 */
  constructor(delegate?: string) {
    this.#dir = mkdtempSync(join(tmpdir(), 'netdra-held-'));
    this.binDir = join(this.#dir, 'bin');
    mkdirSync(this.binDir);
    const answer = '{"cniVersion":"1.0.0","ips":[{"address":"198.18.9.1/24"}]}';
    const error = '{"cniVersion":"1.0.0","code":11,"msg":"planted failure"}';
    const script = [
      '#!/bin/sh',
      `cd ${this.#dir}`,
      'echo $CNI_COMMAND >>calls',
      'while [ -e hold-$CNI_COMMAND ]; do sleep 0.02; done',
      `if [ -e fail-$CNI_COMMAND ]; then echo '${error}'; exit 1; fi`,
      delegate === undefined ? `if [ $CNI_COMMAND = ADD ]; then echo '${answer}'; fi` : `exec ${delegate}`,
    ];
    writeFileSync(this.#program, `${script.join('\n')}\n`);
    chmodSync(this.#program, 0o755);
  }

  /** From now on this command waits, until `release`. */
  hold(command: CniCommand): void {
    writeFileSync(join(this.#dir, `hold-${command}`), '');
  }

  /** From now on this command fails, until `release`. */
  fail(command: CniCommand): void {
    writeFileSync(join(this.#dir, `fail-${command}`), '');
  }

  /** Commands succeed again, including those that are waiting. */
  release(): void {
    for (const what of ['hold', 'fail']) {
      for (const command of ['ADD', 'DEL']) rmSync(join(this.#dir, `${what}-${command}`), { force: true });
    }
  }

  /** Number of calls of a command. */
  calls(command: CniCommand): number {
    const path = join(this.#dir, 'calls');
    return existsSync(path)
      ? readFileSync(path, 'utf8')
          .split('\n')
          .filter((line) => line === command).length
      : 0;
  }

  /** Its processes that are running. */
  running(): number {
    return listProcesses().filter(({ args }) => args.includes(this.#program)).length;
  }

  [Symbol.dispose](): void {
    rmSync(this.#dir, { recursive: true, force: true });
  }

  get #program(): string {
    return join(this.binDir, this.type);
  }
}
