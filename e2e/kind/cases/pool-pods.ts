import type { KubernetesObject, V1Pod, V1StatefulSet } from '@kubernetes/client-node';
import { expect } from 'vitest';
import type { Cluster, Stored } from '../../cluster/cluster.ts';
import { ContainerView } from '../../cluster/container-view.ts';
import { testClass, testTemplate } from '../../cluster/objects.ts';
import { expectTruth } from '../../cluster/vf-pods.ts';
import { podSpecOnAnyNode, type SeveralNodes } from './several-nodes.ts';

const templateName = 'addressed';
const claimName = 'net';
const size = 3;
/** Kubernetes evicts pods of a lost node after some 70 s, and the kubelet tries a refused claim again after some 60 s. */
const settled = { timeout: 240_000, interval: 500 };

/** Addresses with prefix length, and the MAC, of a pod's VF. */
interface PodAddresses {
  ips: string[];
  hardwareAddress: string;
}

/** What kubectl shows of a pool, each row by the address. */
interface Shown {
  leases: string[][];
  addresses: string[][];
}

export interface TestPool {
  name: string;
  remove(): Promise<void>;
}

/** Creates a pool with three addresses of each IP version, and class and template of claims that get one of each. */
export async function createPool(cluster: Cluster): Promise<TestPool> {
  const name = `${cluster.namespace}-pool`;
  const ranges = [
    { network: '198.51.100.0/24', first: '198.51.100.10', last: '198.51.100.12' },
    { network: '2001:db8:100::/64', first: '2001:db8:100::a', last: '2001:db8:100::c' },
  ];
  const pool = { apiVersion: 'netdra.dev/v1alpha1', kind: 'NetworkAddressPool', metadata: { name }, spec: { ranges } };
  const config = { driver: 'kernel', interfaceName: 'net1', addressPool: { name } };
  const deviceClass = testClass(cluster, 'pool', config);
  const { name: deviceClassName = '' } = deviceClass.metadata ?? {};
  for (const object of [pool, deviceClass, testTemplate(cluster, templateName, [{ name: 'vf', deviceClassName }])])
    await cluster.create<KubernetesObject>(object);
  const remove = async () => {
    await cluster.remove('DeviceClass', deviceClassName);
    await cluster.remove('NetworkAddressPool', name);
  };
  return { name, remove };
}

/** A StatefulSet of three pods with addresses of a pool, as even on the nodes as possible. */
export class StatefulPods {
  readonly #kind: SeveralNodes;
  readonly #pool: TestPool;
  readonly #name: string;
  readonly #pods: string[];

  private constructor(kind: SeveralNodes, pool: TestPool, name: string) {
    this.#kind = kind;
    this.#pool = pool;
    this.#name = name;
    this.#pods = Array.from({ length: size }, (_, ordinal) => `${name}-${ordinal}`);
  }

  /** @param pool with class and template */
  static async create(kind: SeveralNodes, pool: TestPool, name: string): Promise<StatefulPods> {
    const labels = { app: name };
    // A node that is cordoned or out of service need not have as many pods as the others.
    const spread = {
      maxSkew: 1,
      topologyKey: 'kubernetes.io/hostname',
      whenUnsatisfiable: 'DoNotSchedule',
      nodeTaintsPolicy: 'Honor',
      labelSelector: { matchLabels: labels },
    };
    const podSpec = podSpecOnAnyNode(kind.cluster, claimName, templateName);
    const statefulSet: V1StatefulSet & KubernetesObject = {
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      metadata: { name, namespace: kind.cluster.namespace },
      spec: {
        serviceName: name,
        replicas: size,
        podManagementPolicy: 'Parallel',
        selector: { matchLabels: labels },
        template: { metadata: { labels }, spec: { ...podSpec, topologySpreadConstraints: [spread] } },
      },
    };
    await kind.cluster.create(statefulSet);
    return new StatefulPods(kind, pool, name);
  }

  /** Replaces all pods, one after the other. */
  restart(): void {
    const { cluster } = this.#kind;
    this.#kind.kubectl('rollout', 'restart', `statefulset/${this.#name}`, '--namespace', cluster.namespace);
  }

  /** Waits until all pods are ready that are meant. */
  async settled(isMeant: (pod: V1Pod) => boolean = () => true): Promise<Stored<V1Pod>[]> {
    let ready: Stored<V1Pod>[] = [];
    const look = async () => {
      const pods = await this.#kind.cluster.list<V1Pod>('Pod');
      ready = pods.filter((pod) => this.#pods.includes(pod.metadata.name) && isReady(pod) && isMeant(pod));
      return ready.map(({ metadata }) => metadata.name).sort();
    };
    await expect.poll(look, settled).toEqual(this.#pods);
    return ready;
  }

  /** Addresses of each pod by the metadata file in its container, which says what the kernel does. */
  async addresses(): Promise<Record<string, PodAddresses>> {
    const read = async (pod: string): Promise<[string, PodAddresses]> => {
      const view = new ContainerView(this.#kind.cluster, pod);
      const { devices } = await expectTruth(view, `resourceclaimtemplates/${claimName}`);
      const { ips = [], hardwareAddress = '' } = devices[0]?.networkData ?? {};
      return [pod, { ips, hardwareAddress }];
    };
    return Object.fromEntries(await Promise.all(this.#pods.map(read)));
  }

  /** Who has which address of the pool, by kubectl. */
  shown(): Shown {
    const rows = (...args: string[]) => {
      const lines = this.#kind
        .kubectl('get', ...args, '--no-headers')
        .trim()
        .split('\n');
      return lines.map((line) => line.split(/ +/)).filter(([, pool]) => pool === this.#pool.name);
    };
    const { namespace } = this.#kind.cluster;
    const leases = rows('networkaddressleases').map(([, , address = '', , , claim = '', pod = '', node = '']) => [
      address,
      claim,
      pod,
      node,
    ]);
    const addresses = rows('networkaddresses', '--namespace', namespace).map(([, , ...columns]) => columns.slice(0, 4));
    return { leases: leases.sort(byText), addresses: addresses.sort(byText) };
  }

  /** What {@link shown} should be while pods run with addresses. */
  expectedShown(pods: readonly Stored<V1Pod>[], given: Record<string, PodAddresses>): Shown {
    const leases = pods.flatMap(({ metadata: { name }, spec, status }) => {
      const claim = status?.resourceClaimStatuses?.[0]?.resourceClaimName ?? '';
      return (given[name]?.ips ?? []).map((cidr) => [cidr.split('/')[0] ?? '', claim, name, spec?.nodeName ?? '']);
    });
    const addresses = Object.entries(given).map(([pod, { ips, hardwareAddress }]) => [
      `${pod}/${claimName}/vf`,
      ...ips,
      hardwareAddress,
    ]);
    return { leases: leases.sort(byText), addresses: addresses.sort(byText) };
  }
}

function isReady({ metadata, status }: V1Pod): boolean {
  const isReady = status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True');
  return metadata?.deletionTimestamp === undefined && isReady === true;
}

function byText(one: string[], other: string[]): number {
  return one.join(' ') < other.join(' ') ? -1 : 1;
}
