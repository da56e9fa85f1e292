import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { V1Pod } from '@kubernetes/client-node';
import { run } from '../../../scripts/packages/run.ts';
import { openStored } from '../../../src/instance/stored-claims.ts';
import { formatSimulatedAlias } from '../../../src/node/sriov/index.ts';
import type { PodSandbox } from '../../node/cri.ts';
import { NodeError } from '../../node/errors.ts';
import { listFolder } from '../../node/host-state.ts';
import { listLeftovers, type NodeBaseline, takeBaseline } from '../../node/leftovers.ts';
import type { Slice } from '../cluster-facts.ts';
import type { ClusterTarget } from '../target.ts';
import type { RealNode } from './real-node.ts';

/** State of a simulated card's link that must be restored. */
interface LinkState {
  ifname: string;
  [property: string]: unknown;
}

type HostLink = LinkState & {
  flags: string[];
  linkinfo?: { info_kind: string };
  addr_info: { local: string; scope: string }[];
};

/** Below the node's own cgroup: created by the kubelet for itself. */
const kubeletCgroups = ['', '/kubepods', '/kubepods/burstable', '/kubepods/besteffort'];

/** Path of a namespace in a sandbox's OCI specification. CRI-O has a folder for each kind, containerd one for netns. */
const namespacePath = /"path":"(?:\/var)?\/run\/\w+ns\/([^"]+)"/g;

/** Time for the kubelet, the driver and the runtime to clean up: includes two rounds of reconciliation. */
const settleMs = 60_000;
const pollMs = 250;

/**
 * Expected state of a node with simulated VFs while no pod uses one: every VF on the host as before the first test, and
 * offered; no claim, file, CDI spec, mount, network namespace, process, cgroup or sandbox of a removed pod.
 */
export class NodeCheck {
  readonly #node: RealNode;
  readonly #target: ClusterTarget;
  readonly #links: LinkState[] = readLinks();
  readonly #before: NodeBaseline = takeBaseline();
  /** Prevents a test from failing for left-overs of an earlier one. */
  readonly #reported = new Set<string>();

  /** The current state of the node becomes the expected one. */
  constructor(node: RealNode, target: ClusterTarget) {
    this.#node = node;
    this.#target = target;
  }

  /**
   * Waits until nothing is left on the node. Ignores what the runtime itself leaks, and removes leaks that would
   * prevent its restart.
   * @throws NodeError `left-behind` with a line for each left-over
   */
  async expectRestored(): Promise<void> {
    for (const endsAt = performance.now() + settleMs; ; await sleep(pollMs)) {
      const left = (await this.#listLeft()).filter((line) => !this.#reported.has(line));
      if (left.length === 0) break;
      if (performance.now() < endsAt) continue;
      for (const line of left) this.#reported.add(line);
      throw new NodeError('left-behind', `left on the node after ${settleMs / 1_000} s:\n${left.join('\n')}`);
    }
    this.#node.runtime.removeLeaks();
  }

  async #listLeft(): Promise<string[]> {
    const { runtime } = this.#node;
    const [pods, slices] = await Promise.all([
      this.#node.list<V1Pod>('/api/v1/pods'),
      this.#node.list<Slice>('/apis/resource.k8s.io/v1/resourceslices'),
    ]);
    const links = readLinks();
    const uids = pods.map(({ metadata }) => metadata?.uid ?? '');
    const { items } = await runtime.cri.call('ListPodSandbox', {});
    const sandboxes = Map.groupBy(items, ({ metadata }) => uids.includes(metadata.uid));
    const { containers } = await runtime.cri.call('ListContainers', {});
    const expected = sandboxes.get(true)?.map(({ id }) => id) ?? [];
    expected.push(...containers.flatMap(({ id, podSandboxId }) => (expected.includes(podSandboxId) ? [id] : [])));
    // containerd, 2.4.2 included, leaks the shim of some sandboxes that are refused or whose start is cancelled.
    // A process of such a sandbox would be found in its cgroup.
    const known = [...expected, ...(await this.#listNamespaces(sandboxes.get(true) ?? [])), ...uids, runtime.dir];
    const own = [runtime.network.bridge, ...kubeletCgroups.map((name) => `${runtime.cri.cgroupParent}${name}`)];
    const isExpected = (text: string) =>
      own.some((each) => text.endsWith(each)) || known.some((each) => text.includes(each));
    return [
      ...this.#listLinks(links),
      ...this.#listDevices(slices, links),
      ...this.#listDriverState(),
      // Sandboxes that have ended are only records, which the kubelet collects once a minute.
      ...(sandboxes.get(false) ?? []).flatMap(({ id, state, metadata }) =>
        state === 'SANDBOX_READY' ? [`sandbox ${id} of ${metadata.namespace}/${metadata.name}`] : [],
      ),
      ...listLeftovers(runtime, this.#before, isExpected).filter((line) => !runtime.isOwnLeak(line)),
    ];
  }

  /** Names of the files by which a runtime keeps the namespaces of sandboxes; none for one that has gone meanwhile. */
  async #listNamespaces(sandboxes: PodSandbox[]): Promise<string[]> {
    const { cri } = this.#node.runtime;
    const results = await Promise.allSettled(
      sandboxes.map(({ id }) => cri.call('PodSandboxStatus', { podSandboxId: id, verbose: true })),
    );
    const infos = results.map((result) => (result.status === 'fulfilled' ? result.value.info.info : ''));
    return infos.flatMap((info = '') => Array.from(info.matchAll(namespacePath), ([, name = '']) => name));
  }

  #listLinks(now: LinkState[]): string[] {
    return this.#links.flatMap((before) => {
      const link = now.find(({ ifname }) => ifname === before.ifname);
      if (link === undefined) return [`link ${before.ifname} is not on the host`];
      const differ = Object.keys({ ...before, ...link }).filter((key) => !isDeepStrictEqual(link[key], before[key]));
      const describe = (key: string) => `${key} ${JSON.stringify(link[key])}, was ${JSON.stringify(before[key])}`;
      return differ.length === 0 ? [] : [`link ${before.ifname}: ${differ.map(describe).join('; ')}`];
    });
  }

  /** Devices that are offered without an interface on the host, and interfaces that are not offered. */
  #listDevices(slices: Slice[], links: LinkState[]): string[] {
    const offered = slices
      .filter(({ spec }) => spec.driver === this.#target.driver)
      .flatMap(({ spec }) => spec.devices ?? [])
      .map(({ attributes }) => attributes?.['resource.kubernetes.io/pciBusID']?.string ?? '');
    const aliases = offered.map(formatSimulatedAlias);
    const vfs = links.flatMap(({ ifname, ifalias }) => (isVf(ifname) ? [ifalias] : []));
    return [
      ...aliases.filter((alias) => !vfs.includes(alias)).map((alias) => `offered without an interface: ${alias}`),
      ...vfs.filter((alias) => !aliases.includes(alias as string)).map((alias) => `not offered: ${alias}`),
    ];
  }

  #listDriverState(): string[] {
    const { driver, paths } = this.#target;
    const dir = join(paths.kubeletPlugins, driver);
    using stored = openStored({ stateDir: dir, dataDir: dir });
    const files = listFolder(join(dir, 'dra-device-metadata'));
    return [
      ...stored.records.names().map((name) => `record ${name} in the store`),
      ...stored.claims.map(
        ({ state, identity }) => `${state} claim ${identity.namespace}/${identity.name} in the store`,
      ),
      ...files.map((name) => `metadata ${name}`),
      ...listFolder(paths.cdi).map((name) => `CDI spec ${name}`),
    ];
  }
}

const isVf = (name: string) => /^nsim\d+v\d+$/.test(name);

/** Without counters, and what the kernel renumbers when a link comes back. */
function readLinks(): LinkState[] {
  const links = JSON.parse(run('ip', ['-json', '-details', 'addr'])) as HostLink[];
  return links
    .filter(({ ifname }) => ifname.startsWith('nsim'))
    .map(({ linkinfo, addr_info, flags, ifname, ...link }) => ({
      ifname,
      ...Object.fromEntries(comparedProperties.map((name) => [name, link[name]])),
      // For a veth end whose other end is down, the state depends on the namespace in which it went down.
      operstate: link.operstate === 'LOWERLAYERDOWN' ? 'DOWN' : link.operstate,
      flags: flags.toSorted(),
      kind: linkinfo?.info_kind,
      addresses: addr_info.flatMap(({ local, scope }) => (scope === 'link' ? [] : [local])),
    }));
}

const comparedProperties = [
  'address',
  'permaddr',
  'broadcast',
  'mtu',
  'txqlen',
  'altnames',
  'ifalias',
  'group',
  'master',
  'link',
  'promiscuity',
  'allmulti',
  'qdisc',
  'xdp',
];
