import { readdirSync, readFileSync } from 'node:fs';
import {
  type KubernetesObject,
  loadAllYaml,
  type ResourceV1ResourceClaim,
  type V1Container,
  type V1Deployment,
  type V1DeviceClass,
  type V1Pod,
  type V1PodSpec,
  type V1ResourceClaimTemplate,
} from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/lib/clock.ts';
import type { Cluster } from '../cluster.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { onNode } from '../objects.ts';

const folder = new URL('../../../examples/', import.meta.url);
const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.yaml'));

/** Kinds of other projects, which the test API servers do not have. */
const foreignKinds = ['VirtualMachineInstance', 'NetworkAttachmentDefinition'];
/** Kinds that not every installation of the chart has; other cases create them. */
const optionalKinds = ['NetworkAddressPool'];

/** Kinds without a namespace. */
const clusterKinds = [
  'ClusterRole',
  'ClusterRoleBinding',
  'DeviceClass',
  'Namespace',
  'NetworkAddressPool',
  'NetworkDevicePolicy',
  'RuntimeClass',
];

const readExample = (file: string) => readFileSync(new URL(file, folder), 'utf8');
/** Whether its pod polls a device: without CPUs of its own it would share them, and numa: require would not apply. */
const needsOwnCpus = (file: string) => /dpdk-testpmd|hugepages|numa: require/.test(readExample(file));

/** The objects of an example, in the namespace of the tests. */
function loadExample({ namespace }: Cluster, file: string): KubernetesObject[] {
  const objects = loadAllYaml(readExample(file)) as KubernetesObject[];
  return objects.map((object) =>
    clusterKinds.includes(object.kind ?? '') ? object : { ...object, metadata: { ...object.metadata, namespace } },
  );
}

/**
 * Adapts an example to simulated VFs and a small node. Replaced: images, by the one of the tests; the class of VFs for
 * DPDK, by the class of interfaces, which DPDK then uses through packet sockets. Left out: huge pages, processors,
 * VLANs, which a PF sets, and constraints if no VF is on a NUMA node, since they are about these.
 */
function adapt(cluster: Cluster, object: KubernetesObject, hasNumaNodes: boolean): KubernetesObject {
  const { kernel, dpdk } = cluster.target.classes;
  const adapted = JSON.parse(JSON.stringify(object).replaceAll(`"${dpdk}"`, `"${kernel}"`)) as KubernetesObject;
  if (adapted.kind === 'ResourceClaim' || adapted.kind === 'ResourceClaimTemplate') {
    const { spec } = adapted as ResourceV1ResourceClaim;
    const { devices } = adapted.kind === 'ResourceClaim' ? spec : (adapted as V1ResourceClaimTemplate).spec.spec;
    if (!hasNumaNodes) delete devices?.constraints;
    for (const { opaque } of devices?.config ?? []) delete (opaque?.parameters as { vf?: object } | undefined)?.vf;
  }
  const spec = podSpecOf(adapted);
  if (spec === undefined) return adapted;
  Object.assign(spec, onNode(cluster), { restartPolicy: spec.restartPolicy ?? 'Always' });
  for (const volume of spec.volumes ?? []) volume.emptyDir = {};
  for (const container of [...(spec.initContainers ?? []), ...spec.containers]) adaptContainer(cluster, container);
  return adapted;
}

/** Not every node has whereabouts; on a single one host-local is enough. */
function useHostLocal({ spec }: V1DeviceClass): void {
  for (const { opaque } of spec.config ?? []) {
    const parameters = opaque?.parameters as {
      ipam?: { type: string; range: string; gateway: string; routes: object };
    };
    if (parameters.ipam?.type !== 'whereabouts') continue;
    const { range: subnet, gateway, routes } = parameters.ipam;
    Object.assign(parameters, { ipam: { type: 'host-local', ranges: [[{ subnet, gateway }]], routes } });
  }
}

function adaptContainer({ target }: Cluster, container: V1Container): void {
  const { image, resources } = container;
  container.image = target.consumerImage;
  // The entry point of the tool's image.
  if (image?.includes('/metadata-tool:')) container.command = ['netdra-metadata'];
  if (resources !== undefined) {
    const extended = Object.entries(resources.limits ?? {}).filter(([name]) => name.includes('/'));
    const limits = extended.length === 0 ? {} : { limits: Object.fromEntries(extended) };
    container.resources = { claims: resources.claims ?? [], ...limits };
  }
  if (container.args?.[0] !== 'dpdk-testpmd') return;
  container.command = container.command?.flatMap((word) => (word === 'exec' ? [word, '--af-packet'] : [word])) ?? [];
  container.args = container.args.flatMap((word) => {
    if (word === '{eal-args}') return [word, '--no-huge', '-m', '64', '--iova-mode=va', '--no-telemetry'];
    return word === '--' ? [word, '--total-num-mbufs=2048'] : [word];
  });
  container.securityContext = { capabilities: { drop: ['ALL'], add: ['NET_RAW'] } };
}

/** That of a pod, or of the pods of a Deployment or StatefulSet. */
function podSpecOf(object: KubernetesObject): V1PodSpec | undefined {
  if (object.kind === 'Pod') return (object as V1Pod).spec;
  return (object as Partial<V1Deployment>).spec?.template?.spec;
}

/** Creates the objects of an example. */
export async function startExample(cluster: Cluster, file: string): Promise<void> {
  const devices = await cluster.devices();
  const hasNumaNodes = devices.some(({ attributes }) => attributes?.['resource.kubernetes.io/numaNode'] !== undefined);
  for (const object of loadExample(cluster, file)) {
    const adapted = adapt(cluster, object, hasNumaNodes);
    if (adapted.kind === 'DeviceClass' && file !== 'whereabouts.yaml') useHostLocal(adapted as V1DeviceClass);
    await cluster.create(adapted);
  }
}

/**
 * Waits until a pod of an example has a node. The scheduler of Kubernetes 1.34 does not look again at a pod that it saw
 * before the DeviceClass of the pod's extended resource: after 10 s the pod is created again, as docs/troubleshooting.md says.
 */
async function createAgainUntilScheduled(cluster: Cluster, file: string, name: string): Promise<void> {
  const manifest = loadExample(cluster, file).find((object) => object.kind === 'Pod' && object.metadata?.name === name);
  let createdAtMs = systemClock.nowMs();
  await cluster.until(`pod ${name} has a node`, async () => {
    if ((await cluster.find<V1Pod>('Pod', name))?.spec?.nodeName !== undefined) return true;
    if (systemClock.nowMs() - createdAtMs < 10_000) return false;
    console.log(`pod ${name} has no node after 10 s; it is created again`);
    await cluster.remove('Pod', name);
    await cluster.create(adapt(cluster, manifest!, false));
    createdAtMs = systemClock.nowMs();
    return false;
  });
}

/** The examples in the documentation: the API server checks all of them, and those that can run are run. */
export function describeExamples(get: GetCluster): void {
  describe('the examples', () => {
    it.for(files)('include %s, whose objects the API server accepts', async (file, { skip }) => {
      const { cluster } = get();
      const objects = loadExample(cluster, file);
      const isDistinct = JSON.stringify(objects).includes('"distinctAttribute"');
      const gate = 'DRAConsumableCapacity';
      skip(isDistinct && !(await cluster.features()).has(gate), `the feature gate ${gate} is off`);
      const known = objects.filter(({ kind = '' }) => ![...foreignKinds, ...optionalKinds].includes(kind));
      expect(known).not.toEqual([]);
      // A pod whose runtime class does not exist is refused; not every cluster has those of the examples.
      await using stack = new AsyncDisposableStack();
      for (const object of known.filter(({ kind }) => kind === 'RuntimeClass')) {
        const name = object.metadata?.name ?? '';
        if ((await cluster.find('RuntimeClass', name)) !== undefined) continue;
        await cluster.create(object);
        stack.defer(() => cluster.remove('RuntimeClass', name));
      }
      const checked: KubernetesObject[] = [];
      for (const object of known) checked.push(await cluster.check(object));
      if (!needsOwnCpus(file)) return;
      const pods = checked.filter((object): object is V1Pod => object.kind === 'Pod');
      expect(new Set(pods.map(({ status }) => status?.qosClass))).toEqual(new Set(['Guaranteed']));
    });

    it('kernel-mode.yaml: the pod prints its device', { tags: 'newest' }, async () => {
      const { cluster } = get();
      await startExample(cluster, 'kernel-mode.yaml');
      const { status } = await cluster.waitUntilEnded('kernel-mode');
      const log = await cluster.log('kernel-mode', 'app');
      expect(status?.phase, log).toBe('Succeeded');
      expect(log).toMatch(/^interface net1 with 192\.0\.2\.10\/24 2001:db8::10\/64, MTU 1400, MAC [0-9a-f:]{17}$/m);
      expect(log).toMatch(/^\d+: net1 +inet 192\.0\.2\.10\/24 /m);
    });

    it('unchanged-pod.yaml: a pod written for a device plugin runs once its DeviceClass exists', async ({ skip }) => {
      const { cluster } = get();
      skip(!(await cluster.features()).has('DRAExtendedResource'), 'the feature gate DRAExtendedResource is off');
      await using _class = {
        [Symbol.asyncDispose]: () => cluster.remove('DeviceClass', 'intel-sriov-netdevice'),
      };
      await startExample(cluster, 'unchanged-pod.yaml');
      await createAgainUntilScheduled(cluster, 'unchanged-pod.yaml', 'unchanged');
      const { status } = await cluster.waitUntilEnded('unchanged');
      const log = await cluster.log('unchanged', 'app');
      expect(status?.phase, log).toBe('Succeeded');
      const address = '[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]';
      expect(log).toMatch(new RegExp(`^VFs ${address},${address}\n"interfaceName": *"[^"]+"\n$`));
    });

    it('deployment.yaml, statefulset.yaml: each pod has a VF, and a StatefulSet pod keeps its address when replaced', {
      tags: 'newest',
    }, async () => {
      const { cluster, view } = get();
      await startExample(cluster, 'deployment.yaml');
      await startExample(cluster, 'statefulset.yaml');
      const workers = async () =>
        (await cluster.list<V1Pod>('Pod'))
          .map(({ metadata }) => metadata.name)
          .filter((name) => name.startsWith('worker-'));
      await cluster.until('two pods of the Deployment', async () => (await workers()).length === 2);
      for (const name of [...(await workers()), 'peer-0-0']) {
        await cluster.waitUntilRunning(name);
        expect((await view(name, 'app').links()).map(({ ifname }) => ifname)).toContain('net1');
      }
      await cluster.remove('Pod', 'peer-0-0');
      await cluster.until('the next pod', async () => (await cluster.find('Pod', 'peer-0-0')) !== undefined);
      await cluster.waitUntilRunning('peer-0-0');
      await expect.poll(() => cluster.log('peer-0-0', 'app'), { timeout: 30_000 }).toContain('inet 192.0.2.30/24');
    });

    it('observability.yaml: the pod lists the first VFs of each PF of its node', {
      tags: 'newest',
    }, async () => {
      const { cluster } = get();
      await startExample(cluster, 'observability.yaml');
      const { status } = await cluster.waitUntilEnded('observability');
      const log = await cluster.log('observability', 'main');
      expect(status?.phase, log).toBe('Succeeded');
      const addresses = (await cluster.devices())
        .filter(({ attributes }) => (attributes?.vfIndex?.int ?? 8) < 8)
        .map(({ attributes }) => attributes?.['resource.kubernetes.io/pciBusID']?.string);
      expect(addresses).not.toEqual([]);
      expect(log.trim().split('\n').slice(1).sort()).toEqual(addresses.sort());
    });

    it('dpdk-testpmd.yaml: testpmd forwards packets on the VF', { tags: 'newest' }, async () => {
      const { cluster } = get();
      await startExample(cluster, 'dpdk-testpmd.yaml');
      await cluster.waitUntilRunning('dpdk-testpmd');
      await expect
        .poll(() => cluster.log('dpdk-testpmd', 'testpmd'), { timeout: 30_000 })
        .toMatch(/NIC statistics for port 0/);
    });

    it('multi-nic.yaml: testpmd gets two VFs, the control container gets the third', { tags: 'newest' }, async () => {
      const { cluster } = get();
      await startExample(cluster, 'multi-nic.yaml');
      await cluster.waitUntilRunning('gateway');
      await expect
        .poll(() => cluster.log('gateway', 'control'), { timeout: 30_000 })
        .toBe('control plane on ctl0, 192.0.2.20\n');
      await expect
        .poll(() => cluster.log('gateway', 'forwarder'), { timeout: 30_000 })
        .toMatch(/NIC statistics for port 1/);
      const restarts = (await cluster.find<V1Pod>('Pod', 'gateway'))?.status?.containerStatuses;
      expect(restarts?.map(({ name, restartCount }) => [name, restartCount])).toEqual([
        ['control', 0],
        ['forwarder', 0],
      ]);
    });
  });
}
