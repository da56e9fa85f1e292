import type { V1EndpointSlice, V1Service } from '@kubernetes/client-node';

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

const meta = '__meta_kubernetes';
const serviceLabel = (label: string) => `${meta}_service_label_${label.replace(/[^a-zA-Z0-9_]/g, '_')}`;

/** The `scrape_configs` that the operator makes of a monitor. */
export function scrapesOf(monitor: ServiceMonitor, services: V1Service[], slices: V1EndpointSlice[]): object[] {
  const found = discover(services, slices);
  return monitor.spec.endpoints.map((_, index) => scrapeConfig(monitor, index, found));
}

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
