/** The DRA driver that Kubernetes tests itself with. */
export const goDriverName = 'test-driver.cdi.k8s.io';

export interface GoDriverOptions {
  nodeName: string;
  /** Below it the driver makes a folder of its own. */
  pluginsDir: string;
  registryDir: string;
  cdiDir: string;
  devices: number;
  /** Default: that of the service account. */
  kubeconfig?: string;
}

/**
 * Arguments of upstream's DRA test driver, which has devices but touches none: its helper reads claims and writes metadata,
 * and it writes a CDI file itself. Client throttling is off, which is to its advantage.
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

/** The annotation by which a pod gets links from that plugin. */
export const linksAnnotation = 'bench.netdra.dev/links';
