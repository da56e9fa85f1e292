// A complete DRA driver. Its devices are scratch directories of the node: a container that claims one finds it under
// /scratch, and what it got in its metadata file. Prepared claims outlive restarts: the name of a file records which claim owns a directory.
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type AllocatedClaim,
  systemClock as clock,
  type DraPlugin,
  deviceMetadataFlag,
  KubeClient,
  openApiAccess,
  type PreparedDevice,
  type PrepareResult,
  ResourceApi,
  startKubeletPlugin,
} from 'netdra/kubeletplugin';
import { CdiSpecs, ClaimMetadata, layouts } from 'netdra/metadata';
import { createSliceApi, SlicePublisher } from 'netdra/resourceslice';

const driver = 'scratch.example.com';
const slots = ['slot-0', 'slot-1', 'slot-2', 'slot-3'];
const { KUBECONFIG, NODE_NAME: nodeName, POD_UID: podUid } = process.env;
if (!nodeName) throw new Error('NODE_NAME is not set: pass spec.nodeName of the pod');
const { KUBELET_DIR: kubeletDir = '/var/lib/kubelet', CDI_DIR: cdiDir = '/var/run/cdi' } = process.env;
const { SCRATCH_DIR: scratchDir = '/var/lib/scratch' } = process.env;
const dataDir = join(kubeletDir, 'plugins', driver);
const logger = console; // pino does, too
const specs = new CdiSpecs({ dir: cdiDir, driver, class: 'scratch' });
// Empty, so that a full disk, a kill or a power loss leaves the whole record or none.
const ownerFile = (slot: string, uid: string) => join(scratchDir, `${slot}.${uid}`);

const ownerOf = async (slot: string) =>
  (await readdir(scratchDir)).find((name) => name.startsWith(`${slot}.`))?.slice(slot.length + 1);

async function prepare({ identity: { uid }, results }: AllocatedClaim): Promise<PrepareResult> {
  const devices: PreparedDevice[] = [];
  for (const { request, pool, device, adminAccess } of results.filter((result) => result.driver === driver)) {
    const prepared: PreparedDevice = { requests: [request], poolName: pool, deviceName: device, cdiDeviceIds: [] };
    devices.push(prepared);
    // Another claim may own it: nothing more than its description.
    if (adminAccess) continue;
    // A force-deleted pod may still be on its way out with what the scheduler has given to the next one.
    const owner = (await ownerOf(device)) ?? uid;
    if (owner !== uid) throw new Error(`${device} is in use by claim ${owner}`);
    await writeFile(ownerFile(device, uid), '');
    await mkdir(join(scratchDir, device), { recursive: true });
    const path = `/scratch/${device}`;
    const mount = { hostPath: join(scratchDir, device), containerPath: path, options: ['rw', 'bind'] };
    await specs.write(uid, device, { mounts: [mount] });
    prepared.cdiDeviceIds.push(specs.deviceId(uid, device));
    prepared.metadata = { attributes: { path: { string: path }, index: { int: slots.indexOf(device) } } };
  }
  return { devices };
}

async function unprepare(uid: string): Promise<void> {
  for (const slot of slots) {
    if ((await ownerOf(slot)) !== uid) continue;
    await rm(join(scratchDir, slot), { recursive: true, force: true });
    await rm(ownerFile(slot, uid));
  }
  specs.removeClaims([uid]);
}

const plugin: DraPlugin = {
  async prepareResourceClaims(claims) {
    const answers = new Map<string, PrepareResult>();
    for (const claim of claims) {
      answers.set(claim.identity.uid, await prepare(claim).catch((error: Error) => ({ error })));
    }
    return answers;
  },
  async unprepareResourceClaims(claims) {
    const answers = new Map<string, Error | undefined>();
    for (const { uid } of claims) {
      const done = unprepare(uid).then(() => undefined);
      answers.set(uid, await done.catch((error: Error) => error));
    }
    return answers;
  },
};

await mkdir(scratchDir, { recursive: true });
await using stack = new AsyncDisposableStack();
const kube = stack.use(new KubeClient(await openApiAccess(KUBECONFIG), { clock, userAgent: driver }));
const claims = new ResourceApi(kube);
const place = { driver, nodeName };
const publisher = stack.use(new SlicePublisher(createSliceApi(kube, claims, place), { ...place, clock, logger }));
const enabled = deviceMetadataFlag(); // --enable-device-metadata
const metadata = new ClaimMetadata({ enabled, driver, dataDir, cdiDir, layouts: [layouts.v1] });
const registryDir = join(kubeletDir, 'plugins_registry');
const options = { driver, dataDir, registryDir, claims, metadata, podUid, health: true, logger };
const helper = stack.use(await startKubeletPlugin(plugin, options));
publisher.publish({ pools: { [nodeName]: { devices: slots.map((name) => ({ name })) } } });
const reportHealth = () =>
  helper.setHealth(slots.map((deviceName) => ({ poolName: nodeName, deviceName, health: 'healthy' })));
reportHealth();
setInterval(reportHealth, 10_000).unref();
await new Promise((resolve) => process.once('SIGTERM', resolve));
