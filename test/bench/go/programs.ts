/** The DRA driver that Kubernetes uses for its own tests. */
export const goDriverName = 'test-driver.cdi.k8s.io';

export interface GoDriverOptions {
  nodeName: string;
  /** The driver creates a folder of its own below it. */
  pluginsDir: string;
  registryDir: string;
  cdiDir: string;
  devices: number;
  /** Default: that of the service account. */
  kubeconfig?: string;
}

/**
 * Arguments of upstream's DRA test driver, which offers devices but touches none: its helper reads claims and writes
 * metadata, and it writes a CDI file itself. Client throttling is off, to its advantage.
 */
export function goDriverArgs(options: GoDriverOptions): string[] {
  const flags = {
    ...(options.kubeconfig === undefined ? {} : { kubeconfig: options.kubeconfig }),
    'kube-api-qps': '-1',
    'node-name': options.nodeName,
    datadir: options.pluginsDir,
    'plugin-registration-path': options.registryDir,
    'cdi-dir': options.cdiDir,
    'num-devices': String(options.devices),
    'enable-device-metadata': 'true',
  };
  return ['kubelet-plugin', ...Object.entries(flags).map(([name, value]) => `--${name}=${value}`)];
}

/** The annotation with the links that the plugin gives to a pod. */
export const linksAnnotation = 'bench.netdra.dev/links';
