import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempDir } from '../../doubles/temp-dir.ts';

/** Writes how it was called, a line each; fails where its call matches the pattern of the shell. */
const script = `#!/bin/sh
call="\${0##*/} $*"
printf '%s\\n' "$call" >>"$FAKE_LOG"
printf '%s\\n' "$KIND_EXPERIMENTAL_PROVIDER" >"$FAKE_LOG.provider"
printf '%s' "$NETDRA_CLUSTER" >"$FAKE_LOG.target"
case $call in
  'kind get clusters') printf '%b' "$FAKE_CLUSTERS" ;;
  $FAKE_FAILURE) exit 3 ;;
esac
`;

/** A PATH with nothing but programs that note how they are called. */
export class FakePrograms implements Disposable {
  readonly #dir = tempDir();
  readonly env: NodeJS.ProcessEnv;

  /**
   * @param names of programs
   * @param more `clusters`: what kind knows; `failure`: a pattern for the call that fails
   */
  constructor(names: string[], { clusters = [], failure = 'none' }: { clusters?: string[]; failure?: string } = {}) {
    const binDir = join(this.#dir.path, 'bin');
    mkdirSync(binDir);
    for (const name of names) {
      writeFileSync(join(binDir, name), script);
      chmodSync(join(binDir, name), 0o755);
    }
    this.env = {
      PATH: binDir,
      NETDRA_CACHE: join(this.#dir.path, 'cache'),
      FAKE_LOG: join(this.#dir.path, 'log'),
      FAKE_CLUSTERS: clusters.map((name) => `${name}\\n`).join(''),
      FAKE_FAILURE: failure,
    };
  }

  get path(): string {
    return this.#dir.path;
  }

  /** What was called, without the folders of this test and the repository. */
  calls(repository: string): string[] {
    const text = existsSync(`${this.path}/log`) ? readFileSync(`${this.path}/log`, 'utf8') : '';
    const lines = text.split('\n').filter(Boolean);
    return lines.map((line) => line.replaceAll(this.path, '$TMP').replaceAll(repository, '$REPO'));
  }

  /** What the last call found in the environment: kind's provider, and the target of the tests. */
  get lastEnvironment(): { provider: string; target: string } {
    const read = (name: string) => readFileSync(`${this.path}/log.${name}`, 'utf8').trim();
    return { provider: read('provider'), target: read('target') };
  }

  [Symbol.dispose](): void {
    this.#dir[Symbol.dispose]();
  }
}
