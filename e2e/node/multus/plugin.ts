import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import type { V1Pod } from '@kubernetes/client-node';
import { formatSimulatedAlias } from '../../../src/node/sriov/pci-address.ts';
import { devicesOfClaims } from './claim-devices.ts';

// A CNI plugin: the runtime runs it in place of the plugin of the pod network.

interface PluginSettings {
  /** Address of the API server. */
  server: string;
  /** Folder with the actual plugins. */
  pluginDir: string;
  /** Where the delegates of a sandbox are kept for DEL: the pod may be gone then. */
  cacheDir: string;
}

interface Definition {
  metadata: { annotations?: Record<string, string> };
  spec: { config: string };
}

type PluginConfig = Record<string, unknown> & { type: string };

const settings: PluginSettings = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8'));
const { CNI_COMMAND: command = '', CNI_CONTAINERID: containerId = '', CNI_ARGS: args = '' } = process.env;
const cacheFile = join(settings.cacheDir, containerId);

async function get<T>(path: string): Promise<T> {
  const response = await fetch(`${settings.server}${path}`, { headers: { authorization: 'Bearer any' } });
  if (!response.ok) throw new Error(`GET ${path}: ${response.status}`);
  return (await response.json()) as T;
}

function run(program: string, interfaceName: string, config: string): string {
  const env = { ...process.env, CNI_IFNAME: interfaceName };
  try {
    return execFileSync(join(settings.pluginDir, program), { env, input: config, encoding: 'utf8' });
  } catch (error) {
    throw new Error(`${program}: ${(error as { stdout?: string }).stdout}`);
  }
}

/** The networks of the pod's annotation, each with the next device of its resource name. */
async function delegatesOf(podArgs: Map<string, string>): Promise<PluginConfig[]> {
  const namespace = podArgs.get('K8S_POD_NAMESPACE') ?? '';
  const pod = await get<V1Pod>(`/api/v1/namespaces/${namespace}/pods/${podArgs.get('K8S_POD_NAME')}`);
  const names = pod.metadata?.annotations?.['k8s.v1.cni.cncf.io/networks']?.split(',') ?? [];
  if (names.length === 0) return [];
  const devices = await devicesOfClaims(pod, get);
  const delegates: PluginConfig[] = [];
  for (const name of names.map((each) => each.trim())) {
    const path = `/apis/k8s.cni.cncf.io/v1/namespaces/${namespace}/network-attachment-definitions/${name}`;
    const { metadata, spec } = await get<Definition>(path);
    const resourceName = metadata.annotations?.['k8s.v1.cni.cncf.io/resourceName'] ?? '';
    const deviceID = devices.get(resourceName)?.shift();
    if (deviceID === undefined) throw new Error(`network ${name}: the pod has no device of ${resourceName} left`);
    delegates.push(withDevice(JSON.parse(spec.config), deviceID));
  }
  return delegates;
}

/** sriov-cni moves a VF as host-device does; a simulated VF has no PCI function by which a plugin could find it. */
function withDevice(config: PluginConfig, deviceID: string): PluginConfig {
  const links: { ifname: string; ifalias?: string }[] = JSON.parse(execFileSync('ip', ['-j', 'link']).toString());
  const device = links.find(({ ifalias }) => ifalias === formatSimulatedAlias(deviceID))?.ifname;
  if (device === undefined) throw new Error(`there is no interface of ${deviceID} on the host`);
  return { ...config, type: 'host-device', device };
}

const interfaceOf = (index: number) => `net${index + 1}`;

try {
  const config = await text(process.stdin);
  const podArgs = new Map(args.split(';').map((entry) => entry.split('=', 2) as [string, string]));
  if (command === 'DEL') {
    let cached: PluginConfig[] = [];
    try {
      cached = JSON.parse(readFileSync(cacheFile, 'utf8'));
    } catch {
      // ADD came to no networks.
    }
    for (const [index, each] of cached.entries()) run(each.type, interfaceOf(index), JSON.stringify(each));
    rmSync(cacheFile, { force: true });
    process.stdout.write(run('bridge', 'eth0', config));
  } else if (command === 'ADD') {
    const result = run('bridge', 'eth0', config);
    const delegates = await delegatesOf(podArgs);
    mkdirSync(settings.cacheDir, { recursive: true });
    for (const [index, each] of delegates.entries()) {
      writeFileSync(cacheFile, JSON.stringify(delegates.slice(0, index + 1)));
      run(each.type, interfaceOf(index), JSON.stringify(each));
    }
    process.stdout.write(result);
  } else {
    process.stdout.write(run('bridge', 'eth0', config));
  }
} catch (error) {
  process.stdout.write(JSON.stringify({ cniVersion: '1.0.0', code: 999, msg: (error as Error).message }));
  process.exitCode = 1;
}
