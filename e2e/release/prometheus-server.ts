import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { Program } from '../node/program.ts';
import { locatePrometheus } from './prometheus.ts';

/** Port on 127.0.0.1 of a node that scripts/in-node.sh has made. */
const port = 9090;

export interface Sample {
  metric: Record<string, string>;
  /** Time in seconds, and the value as text. */
  value: [number, string];
}

export interface Series {
  metric: Record<string, string>;
  values: Sample['value'][];
}

export interface PrometheusOptions {
  /** Folder for its configuration and data. */
  dir: string;
  /** A file of alert rules, parsed. */
  rules: object;
  /** Its `scrape_configs`. */
  scrapes: readonly object[];
}

/** A Prometheus that evaluates its rules every second. */
export class Prometheus implements AsyncDisposable {
  readonly #program: Program;

  private constructor(program: Program) {
    this.#program = program;
  }

  /** @throws NodeError `program-ended`, `not-ready`; NetdraError `tool-missing` */
  static async start({ dir, rules, scrapes }: PrometheusOptions): Promise<Prometheus> {
    const [config, rulesFile, data] = ['prometheus.json', 'rules.json', 'prometheus'].map((name) => join(dir, name));
    writeFileSync(rulesFile!, JSON.stringify(rules));
    writeFileSync(
      config!,
      JSON.stringify({ global: { evaluation_interval: '1s' }, rule_files: [rulesFile], scrape_configs: scrapes }),
    );
    const program = await Program.start({
      program: locatePrometheus('prometheus', cacheFolder(process.env), process.env),
      args: [
        `--config.file=${config}`,
        `--storage.tsdb.path=${data}`,
        `--web.listen-address=127.0.0.1:${port}`,
        '--enable-feature=exemplar-storage',
        // Debian's package has them elsewhere; nothing here is looked at in a browser.
        `--web.console.templates=${dir}`,
        `--web.console.libraries=${dir}`,
      ],
      logPath: join(dir, 'prometheus.log'),
      isReady: async () => (await fetch(`http://127.0.0.1:${port}/-/ready`)).ok,
    });
    return new Prometheus(program);
  }

  /** The samples of an expression at this moment. @throws Error if Prometheus rejects it */
  async query(expression: string): Promise<Sample[]> {
    const { result } = await ask<{ result: Sample[] }>(`query?query=${encodeURIComponent(expression)}`);
    return result;
  }

  /** Samples of all series of a selector at each second. @param start Unix time in seconds, the first one @param end the last one */
  async range(selector: string, start: number, end: number): Promise<Series[]> {
    const query = `query=${encodeURIComponent(selector)}&start=${start}&end=${end}&step=1`;
    return (await ask<{ result: Series[] }>(`query_range?${query}`)).result;
  }

  /** Labels of the exemplars that it has stored for the series of a selector. */
  async exemplars(selector: string): Promise<Record<string, string>[]> {
    const range = `start=0&end=${Math.ceil(Date.now() / 1_000)}`;
    const found = await ask<{ exemplars: { labels: Record<string, string> }[] }[]>(
      `query_exemplars?query=${encodeURIComponent(selector)}&${range}`,
    );
    return found.flatMap(({ exemplars }) => exemplars.map(({ labels }) => labels));
  }

  /** The alerts that it evaluates, each with `ok`, or why it cannot evaluate them. */
  async alerts(): Promise<Record<string, string>> {
    const { groups } = await ask<{ groups: { rules: { name: string; health: string; lastError?: string }[] }[] }>(
      'rules',
    );
    const rules = groups.flatMap((group) => group.rules);
    return Object.fromEntries(rules.map(({ name, health, lastError }) => [name, lastError ?? health]));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#program[Symbol.asyncDispose]();
  }
}

async function ask<T>(path: string): Promise<T> {
  const response = await fetch(`http://127.0.0.1:${port}/api/v1/${path}`);
  const answer = (await response.json()) as { status: string; error?: string; data: T };
  if (answer.status !== 'success') throw new Error(`${path}: ${answer.error}`);
  return answer.data;
}
