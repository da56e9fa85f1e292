import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { V1EndpointSlice, V1Service } from '@kubernetes/client-node';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { Program } from '../node/program.ts';
import { locatePrometheus } from '../release/prometheus.ts';

/** Port on 127.0.0.1 of a node that scripts/in-node.sh has made. */
const port = 9090;

/** The parts of a `ServiceMonitor` of the Prometheus operator that the chart uses. */
export interface ServiceMonitor {
  spec: {
    jobLabel: string;
    selector: { matchLabels: Record<string, string> };
    endpoints: {
      port: string;
      path: string;
      interval: string;
      honorLabels: boolean;
      relabelings: { sourceLabels: string[]; targetLabel: string }[];
    }[];
  };
}

/** A `PrometheusRule` of the Prometheus operator. */
export interface PrometheusRule {
  spec: { groups: { rules: { alert: string }[] }[] };
}

export interface Sample {
  metric: Record<string, string>;
  /** Time in seconds, and the value as text. */
  value: [number, string];
}

export interface PrometheusOptions {
  /** Folder for its configuration and data. */
  dir: string;
  monitor: ServiceMonitor;
  /** Of the monitor's namespace. */
  services: V1Service[];
  slices: V1EndpointSlice[];
  rule: PrometheusRule;
}

/**
 * A Prometheus that scrapes what a `ServiceMonitor` names, as one does that the operator has configured. Debian builds it
 * without the discovery of Kubernetes' objects: it gets what that would have found.
 */
export class Prometheus implements AsyncDisposable {
  readonly #program: Program;

  private constructor(program: Program) {
    this.#program = program;
  }

  /** @throws NodeError `program-ended`, `not-ready`; NetdraError `tool-missing` */
  static async start({ dir, monitor, services, slices, rule }: PrometheusOptions): Promise<Prometheus> {
    const [config, rules, data] = ['prometheus.json', 'rules.json', 'prometheus'].map((name) => join(dir, name));
    writeFileSync(rules!, JSON.stringify(rule.spec));
    const found = discover(services, slices);
    const scrapes = monitor.spec.endpoints.map((_, index) => scrapeConfig(monitor, index, found));
    writeFileSync(
      config!,
      JSON.stringify({ global: { evaluation_interval: '1s' }, rule_files: [rules], scrape_configs: scrapes }),
    );
    const program = await Program.start({
      program: locatePrometheus('prometheus', cacheFolder(process.env), process.env),
      args: [
        `--config.file=${config}`,
        `--storage.tsdb.path=${data}`,
        `--web.listen-address=127.0.0.1:${port}`,
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

const meta = '__meta_kubernetes';
const serviceLabel = (label: string) => `${meta}_service_label_${label.replace(/[^a-zA-Z0-9_]/g, '_')}`;

/** The targets with their labels, as Prometheus finds them: `endpointslice` of `kubernetes_sd_config`. */
function discover(services: V1Service[], slices: V1EndpointSlice[]) {
  return services.flatMap(({ metadata }) => {
    const labels = Object.entries(metadata?.labels ?? {}).map(([label, value]) => [serviceLabel(label), value]);
    const own = slices.filter((slice) => slice.metadata?.labels?.['kubernetes.io/service-name'] === metadata?.name);
    return own.flatMap(({ endpoints = [], ports = [] }) =>
      endpoints.flatMap(({ addresses, nodeName = '' }) =>
        ports.map(({ name = '', port }) => ({
          targets: [`${addresses[0]}:${port}`],
          labels: {
            ...Object.fromEntries(labels),
            [`${meta}_endpointslice_port_name`]: name,
            [`${meta}_pod_node_name`]: nodeName,
          },
        })),
      ),
    );
  });
}

/** As the operator writes it: https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.Endpoint */
function scrapeConfig({ spec }: ServiceMonitor, index: number, found: ReturnType<typeof discover>) {
  const { port: portName, path, interval, honorLabels, relabelings } = spec.endpoints[index]!;
  const keep = (label: string, regex: string) => ({ action: 'keep', source_labels: [label], regex });
  return {
    job_name: `serviceMonitor/${index}`,
    metrics_path: path,
    scrape_interval: interval,
    scrape_timeout: interval,
    honor_labels: honorLabels,
    static_configs: found,
    relabel_configs: [
      ...Object.entries(spec.selector.matchLabels).map(([label, value]) => keep(serviceLabel(label), value)),
      keep(`${meta}_endpointslice_port_name`, portName),
      { source_labels: [serviceLabel(spec.jobLabel)], target_label: 'job' },
      ...relabelings.map(({ sourceLabels, targetLabel }) => ({
        source_labels: sourceLabels,
        target_label: targetLabel,
      })),
    ],
  };
}

async function ask<T>(path: string): Promise<T> {
  const response = await fetch(`http://127.0.0.1:${port}/api/v1/${path}`);
  const answer = (await response.json()) as { status: string; error?: string; data: T };
  if (answer.status !== 'success') throw new Error(`${path}: ${answer.error}`);
  return answer.data;
}
