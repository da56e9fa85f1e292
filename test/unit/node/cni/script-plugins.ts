import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** One call of a plugin, as the plugin saw it. */
export interface RecordedCall {
  plugin: string;
  env: Record<string, string>;
  // biome-ignore lint/suspicious/noExplicitAny: whatever the plugin was given
  config: any;
}

/** CNI plugins that are shell scripts: real programs that record how they are called and then do what the test says. Each starts as few programs as can be. */
export class ScriptPlugins {
  readonly binDir: string;
  readonly #callsDir: string;

  constructor(dir: string) {
    this.binDir = join(dir, 'bin');
    this.#callsDir = join(dir, 'calls');
    mkdirSync(this.binDir);
    mkdirSync(this.#callsDir);
  }

  /** @param body shell commands; the configuration is in `$config` */
  write(name: string, body: string): void {
    const script = `#!/bin/sh
IFS= read -r config || :
call=${this.#callsDir}/$$
cp /proc/$$/environ "$call.env"
printf '%s' "$config" >"$call.config"
: >"$call.is-${name}"
${body}
`;
    const path = join(this.binDir, name);
    // A shell reads its script as it goes: one that runs must not see the new text.
    writeFileSync(`${path}.new`, script);
    chmodSync(`${path}.new`, 0o755);
    renameSync(`${path}.new`, path);
  }

  /** A plugin that succeeds. */
  writeResult(name: string, result: object): void {
    this.write(name, `[ $CNI_COMMAND = DEL ] || cat <<'RESULT'\n${JSON.stringify(result)}\nRESULT`);
  }

  /** A plugin that fails at one command and does nothing at the other. */
  writeError(name: string, command: 'ADD' | 'DEL', error: object): void {
    const idle = `{ [ $CNI_COMMAND = DEL ] || echo '{"cniVersion":"1.0.0"}'; exit 0; }`;
    this.write(
      name,
      `[ $CNI_COMMAND = ${command} ] || ${idle}\ncat <<'ERROR'\n${JSON.stringify(error)}\nERROR\nexit 1`,
    );
  }

  /** All calls so far, in their order. */
  calls(): RecordedCall[] {
    // Times are those of the kernel's ticks, so two calls may have the same.
    const whole = readdirSync(this.#callsDir).flatMap((file) => {
      const [, pid, plugin = ''] = /^(\d+)\.is-(.*)$/.exec(file) ?? [];
      return pid === undefined ? [] : [{ pid, plugin, atMs: statSync(join(this.#callsDir, file)).mtimeMs }];
    });
    return whole
      .sort((one, other) => one.atMs - other.atMs || Number(one.pid) - Number(other.pid))
      .map(({ pid, plugin }) => {
        const read = (file: string) => readFileSync(join(this.#callsDir, `${pid}.${file}`), 'utf8');
        const env = read('env')
          .split('\0')
          .filter((line) => line !== '');
        return {
          plugin,
          env: Object.fromEntries(env.map((line) => [line.split('=')[0]!, line.slice(line.indexOf('=') + 1)])),
          config: JSON.parse(read('config')),
        };
      });
  }

  /** `bridge ADD`, in the order of the calls. */
  summary(): string[] {
    return this.calls().map(({ plugin, env }) => `${plugin} ${env.CNI_COMMAND}`);
  }
}
