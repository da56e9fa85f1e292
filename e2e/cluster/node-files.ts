import type { KubernetesObject, V1Pod } from '@kubernetes/client-node';
import type { Cluster } from './cluster.ts';
import { onNode, toContainer } from './objects.ts';

const podName = 'node-files';
const container = 'main';
const mounts = { plugin: '/mnt/plugin', cdi: '/mnt/cdi' };

/**
 * The driver's files and simulated cards on the node, through a pod that mounts its folders and uses the node's network. The pod is removed
 * with the namespace.
 */
export class NodeFiles {
  static readonly podName = podName;
  readonly #cluster: Cluster;

  private constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  static async open(cluster: Cluster): Promise<NodeFiles> {
    await cluster.create(nodeFilesPod(cluster));
    await cluster.waitUntilRunning(podName);
    return new NodeFiles(cluster);
  }

  /** Names of the folders and CDI specs that exist for a claim. */
  async ofClaim(claim: { metadata: { name: string; uid: string } }): Promise<string[]> {
    const { name, uid } = claim.metadata;
    const folder = `${this.#cluster.namespace}_${name}`;
    const folders = await this.#names(`${mounts.plugin}/dra-device-metadata`);
    const specs = await this.#names(mounts.cdi);
    return [...folders.filter((each) => each === folder), ...specs.filter((each) => each.includes(uid))];
  }

  /** Simulated VFs that are on the node rather than in a pod. */
  async simulatedVfs(): Promise<string[]> {
    const links = JSON.parse(await this.#read('ip', '-j', 'link')) as { ifname: string }[];
    return links.map(({ ifname }) => ifname).filter((name) => /^nsim\d+v\d+$/.test(name));
  }

  /** Makes a simulated card lose a VF, as on a write to `sriov_numvfs`. The driver recreates it when it starts. */
  async loseSimulatedVf(pciAddress: string): Promise<void> {
    const root = `${mounts.plugin}/simulated`;
    const script = `for link in ${root}/devices/*/*/virtfn*; do
      case $(readlink "$link") in */${pciAddress}) rm "$link"; exit 0 ;; esac
    done; exit 1`;
    await this.#read('sh', '-c', script);
  }

  /** Sets the bridge of a simulated PF, which has a carrier while it is up. */
  async setSimulatedPf(name: string, state: 'up' | 'down'): Promise<void> {
    await this.#read('ip', 'link', 'set', name, state);
  }

  /** Entries of a folder that may not exist. */
  async #names(folder: string): Promise<string[]> {
    const listed = await this.#read('sh', '-c', `if [ -d ${folder} ]; then ls -1 ${folder}; fi`);
    return listed.split('\n').filter(Boolean);
  }

  async #read(...command: string[]): Promise<string> {
    return await this.#cluster.read(podName, container, ...command);
  }
}

function nodeFilesPod(cluster: Cluster): V1Pod & KubernetesObject {
  const { paths, driver } = cluster.target;
  const folders = { plugin: `${paths.kubeletPlugins}/${driver}`, cdi: paths.cdi };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: podName, namespace: cluster.namespace },
    spec: {
      ...onNode(cluster),
      restartPolicy: 'Always',
      hostNetwork: true,
      containers: [
        {
          ...toContainer(cluster, { name: container }),
          volumeMounts: Object.entries(mounts).map(([name, mountPath]) => ({ name, mountPath })),
          // For nodes where SELinux protects their folders from containers; without SELinux it has no effect.
          securityContext: { capabilities: { add: ['NET_ADMIN'] }, seLinuxOptions: { type: 'spc_t' } },
        },
      ],
      volumes: Object.entries(folders).map(([name, path]) => ({ name, hostPath: { path, type: 'Directory' } })),
    },
  };
}
