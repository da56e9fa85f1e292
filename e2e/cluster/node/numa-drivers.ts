import { join } from 'node:path';
import {
  type DraPlugin,
  KubeClient,
  openApiAccess,
  type PrepareResult,
  ResourceApi,
  startKubeletPlugin,
  systemClock,
} from '../../../src/framework/kubeletplugin/index.ts';
import { CdiSpecs } from '../../../src/framework/metadata/index.ts';
import type { Device } from '../../../src/framework/resourceslice/index.ts';
import { cpuList, readNumaNodes } from '../../../src/node/numa/index.ts';
import { kubeletDir } from './kubelet.ts';
import { nodeName, nodePaths, type RealNode } from './real-node.ts';

/** As many CPUs as a claim asks for in the examples. */
const cpusPerClaim = 2;

const onNumaNode = (int: number) => ({ 'resource.kubernetes.io/numaNode': { int } });

/** Two NUMA nodes, of which this machine may have only the first one. */
const nodes = [0, 1];

/** What such drivers publish, and what containers get. Sources: README of dra-driver-cpu, that of dra-driver-memory. */
const driversWith = (
  accelerators: NonNullable<Device['attributes']>[],
): { name: string; devices: Device[]; env: (claimUid: string) => string[] }[] => [
  {
    name: 'dra.cpu',
    devices: [...readNumaNodes()].map(([node, cpus]) => ({
      name: `cpudevnuma00${node}`,
      attributes: onNumaNode(node),
      capacity: { 'dra.cpu/cpu': { value: `${cpus.size}` } },
    })),
    env: (uid) => [`DRA_CPUSET_${uid}=${cpuList([...(readNumaNodes().get(0) ?? [])].slice(0, cpusPerClaim))}`],
  },
  {
    name: 'dra.memory',
    devices: nodes.map((node) => ({
      name: `memory-${node}`,
      attributes: onNumaNode(node),
      capacity: { size: { value: '1Gi' } },
    })),
    env: () => [],
  },
  {
    name: 'accelerator.example.com',
    devices: accelerators.map((attributes, index) => ({ name: `accelerator-${index}`, attributes })),
    env: () => [],
  },
];

/**
 * A stand-in for drivers of CPUs, memory and accelerators, with a DeviceClass of the name of each: it assigns nothing, and
 * tells containers which CPUs they would have.
 * @param accelerators the attributes of each; default: one on each NUMA node
 */
export async function startNumaDrivers(
  node: RealNode,
  accelerators = nodes.map<NonNullable<Device['attributes']>>(onNumaNode),
): Promise<AsyncDisposable> {
  await using stack = new AsyncDisposableStack();
  const access = await openApiAccess(node.controlPlane.adminKubeconfig);
  const kube = stack.use(new KubeClient(access, { clock: systemClock, userAgent: 'numa-drivers' }));
  const claims = new ResourceApi(kube);
  for (const { name: driver, devices, env } of driversWith(accelerators)) {
    const specs = new CdiSpecs({ dir: nodePaths.cdi, driver, class: 'device' });
    const plugin: DraPlugin = {
      async prepareResourceClaims(prepared) {
        const answer = ({ identity: { uid }, results }: (typeof prepared)[number]): PrepareResult => {
          const own = results.filter((result) => result.driver === driver);
          for (const { device } of own)
            specs.write(uid, device, { env: [`${driver.replaceAll(/\W/g, '_')}=1`, ...env(uid)] });
          return {
            devices: own.map(({ request, pool, device }) => ({
              requests: [request],
              poolName: pool,
              deviceName: device,
              cdiDeviceIds: [specs.deviceId(uid, device)],
            })),
          };
        };
        return new Map(prepared.map((claim) => [claim.identity.uid, answer(claim)]));
      },
      async unprepareResourceClaims(identities) {
        specs.removeClaims(identities.map(({ uid }) => uid));
        return new Map(identities.map(({ uid }) => [uid, undefined]));
      },
    };
    const logger = { debug() {}, info() {}, warn: console.warn, error: console.error };
    const dataDir = join(kubeletDir, 'plugins', driver);
    const registryDir = join(kubeletDir, 'plugins_registry');
    const running = stack.use(await startKubeletPlugin(plugin, { driver, dataDir, registryDir, claims, logger }));
    // The kubelet tries a pod again only after a minute.
    await running.whenRegistered(AbortSignal.timeout(60_000));
    // Not by SlicePublisher, which knows no driver that qualifies its own names, as dra-driver-cpu does.
    const pool = { name: nodeName, generation: 1, resourceSliceCount: 1 };
    const slice = { metadata: { name: `${nodeName}-${driver}` }, spec: { driver, nodeName, pool, devices } };
    const selectors = [{ cel: { expression: `device.driver == "${driver}"` } }];
    const deviceClass = { metadata: { name: driver }, spec: { selectors } };
    for (const [kind, object] of Object.entries({ ResourceSlice: slice, DeviceClass: deviceClass })) {
      const path = `/apis/resource.k8s.io/v1/${kind === 'DeviceClass' ? 'deviceclasses' : 'resourceslices'}`;
      await kube.request({ method: 'POST', path, body: { apiVersion: 'resource.k8s.io/v1', kind, ...object } });
    }
    stack.defer(() => void node.kubectl('delete', 'deviceclass', driver));
    stack.defer(() => void node.kubectl('delete', 'resourceslices', '--field-selector', `spec.driver=${driver}`));
  }
  return stack.move();
}
