import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** One call of a plugin, as the plugin saw it. */
export interface RecordedCall {
  plugin: string;
  env: Record<string, string>;
  // biome-ignore lint/suspicious/noExplicitAny: whatever the plugin was given
  config: any;
}

/** CNI plugins that are shell scripts: real programs that record how they are called and then do what the test says. */
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
config=$(cat)
call=${this.#callsDir}/$(date +%s%N)-$$
mkdir "$call"
tr '\\0' '\\n' </proc/$$/environ >"$call/env"
printf '%s' "$config" >"$call/config"
printf ${name} >"$call/name" && mv "$call/name" "$call/plugin"
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
    return readdirSync(this.#callsDir)
      .filter((name) => existsSync(join(this.#callsDir, name, 'plugin')))
      .sort()
      .map((name) => {
        const read = (file: string) => readFileSync(join(this.#callsDir, name, file), 'utf8');
        const env = read('env').trim().split('\n');
        return {
          plugin: read('plugin'),
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
