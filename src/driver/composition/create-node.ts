import type { PluginHandlers } from '../../../nri/index.ts';
import { withClaimStatus } from '../../framework/claimstatus/index.ts';
import { ResourceApi } from '../../framework/kube/index.ts';
import type { ClaimIdentity, ClaimMetadata } from '../../framework/metadata/index.ts';
import { explain } from '../../lib/errors.ts';
import type { DeviceList } from '../devices/device-list.ts';
import { reportDevices, reportHealth } from '../devices/device-report.ts';
import type { InventoryView } from '../devices/inventory-view.ts';
import { LacpRelay } from '../devices/lacp-relay.ts';
import { DriftRecord } from '../drift/index.ts';
import { type FailureEvents, withClaimEvents, withPodEvents } from '../events/index.ts';
import { RecordedFiles } from '../recovery/index.ts';
import { decodedFields, type SandboxRegistry, type SandboxServices } from '../sandbox/index.ts';
import type { Store } from '../state/index.ts';
import type { VfControl } from '../vf/index.ts';
import { createAttachments } from './create-attachments.ts';
import { createClaims, serveKubelet } from './create-claims.ts';
import { createDevices } from './create-devices.ts';
import { createNodeView } from './create-node-view.ts';
import { createReconciler } from './create-reconciler.ts';
import { createReports, type NodeReports } from './create-reports.ts';
import { createSandboxes } from './create-sandboxes.ts';
import type { NodeContext } from './node-context.ts';
import { nodeFacts } from './node-facts.ts';
import type { NodePorts, NodeSettings } from './ports.ts';

/** The driver of one node. Disposing stops the driver; prepared claims stay prepared, and `NodePorts` stay open. */
export interface NetworkNode extends AsyncDisposable {
  /** Serves sandboxes whose containers wait, connects to the runtime, and offers the devices. */
  start(): Promise<void>;
  /** Waits until the runtime delivers pod events. @throws ConnectionClosedError if the driver stops first */
  whenConnected(): Promise<void>;
  /** Returns the devices, for the tools of the node. @throws NetdraError `devices-unlisted`; StateError */
  inventory(): InventoryView;
}

/**
 * Composes the driver of a node from its parts, and begins to serve the kubelet's calls.
 * @throws NetdraError if a part cannot be created
 */
export async function createNode(ports: NodePorts, settings: NodeSettings): Promise<NetworkNode> {
  await using stack = new AsyncDisposableStack();
  const { logger, kube, observer, decorate = (_name, part) => part } = ports;
  const { store } = ports.disk;
  const { driverName: driver, nodeName: node } = settings;
  const podUidsOf = podUidsFrom(store);
  const resources = new ResourceApi(kube);
  const context: NodeContext = { ...ports, settings, stack, decorate, resources, podUidsOf, drift: new DriftRecord() };

  // `undefined` until the registry exists; until then, this instance has served no sandbox.
  let sandboxes: SandboxRegistry | undefined;
  const { metadata, devices } = await createDevices(context, (claim) => sandboxes?.requeuePods(podUidsOf(claim)));
  const nudge = () => reconciler.nudge();
  const moving = createAttachments(context, devices, (podUid) => sandboxes?.requeuePods([podUid]));
  const reports = createReports(context, devices, metadata);
  const { publisher, events, status } = reports;
  const claims = createClaims(context, { devices, metadata, attachments: moving.attachments, events });
  const plugin = withClaimEvents(observer.plugin(withClaimStatus(claims.driver, reports.statusWriter)), events);
  const kubelet = await serveKubelet(context, plugin, metadata, publisher);
  const parts = { ...moving, ...reports, ...claims, devices, metadata, kubelet };
  const { hooks, registry, deletedPods, waitingSandboxes } = createSandboxes(context, parts, nudge);
  sandboxes = registry;
  const runtime = connectRuntime(context, { hooks, events, metadata });
  const files = new RecordedFiles(kubelet, logger);
  const reconciler = createReconciler(context, { ...parts, files, registry, nudge });
  const reported = { node, devices, store, publisher, kubelet, events, observer };
  const follow = createFollowers(context, parts);
  const report = () => {
    reportDevices(reported);
    follow();
  };
  const owned = stack.move();
  return {
    async start() {
      await files.restore();
      // The runtime registers the driver only after every sandbox has answered the runtime. A sandbox whose containers wait
      // does not answer, so such sandboxes are served first.
      await waitingSandboxes.serve();
      runtime.start();
      for (const part of [waitingSandboxes, moving.cniCleanUp, reconciler, deletedPods]) part.start();
      status.reportAttached();
      report();
      devices.watch(report, () => {
        reportHealth(reported);
        follow();
      });
      observer.started(nodeFacts(context, { devices, metadata, sandboxes: registry }));
      logger.info({ driver, node, devices: devices.offered().length }, 'driver started');
    },
    whenConnected: async () => void (await runtime.whenConnected()),
    inventory: () => devices.view(store.claims()),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** Creates a plugin for the container runtime, which connects when it is started. */
function connectRuntime(
  { runtime, observer, stack }: NodeContext,
  { hooks, events, metadata }: { hooks: SandboxServices['hooks']; events: FailureEvents; metadata: ClaimMetadata },
) {
  const handlers: PluginHandlers = {
    ...observer.handlers(withPodEvents(hooks, events)),
    connected: () => observer.connected('nri'),
    disconnected: (error) => {
      hooks.disconnected();
      observer.connected('nri', error === undefined ? 'closed' : explain(error));
    },
  };
  return stack.use(runtime.connect(handlers, decodedFields(metadata.mountSources)));
}

/**
 * Returns a function that looks up the pods of a claim. It returns no pods if the store cannot be read: other work reports
 * that failure.
 */
function podUidsFrom(store: Store) {
  return ({ uid }: ClaimIdentity): string[] => {
    try {
      return store.claim(uid)?.podUids ?? [];
    } catch {
      return [];
    }
  };
}

/** Creates the parts that follow changes of devices. @returns a function to call after each scan */
function createFollowers(
  context: NodeContext,
  parts: NodeReports & { devices: DeviceList; control: VfControl },
): () => void {
  const { disk, logger, stack } = context;
  const { store, locks } = disk;
  const { devices, control, sliceApi, slicesFailure, knownNodeUid } = parts;
  const relay = stack.use(new LacpRelay({ devices, store, control, locks, logger }));
  const view = stack.use(createNodeView(context, { devices, sliceApi, slicesFailure, knownNodeUid }));
  return () => {
    void relay.follow();
    view?.note();
  };
}
