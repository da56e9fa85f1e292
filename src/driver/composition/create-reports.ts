import { ClaimStatusWriter } from '../../framework/claimstatus/index.ts';
import { type ClaimMetadata, claimName } from '../../framework/metadata/index.ts';
import { createSliceApi, type SliceApi, SlicePublisher } from '../../framework/resourceslice/index.ts';
import { explain } from '../../lib/errors.ts';
import type { DeviceList } from '../devices/device-list.ts';
import { afterOthers } from '../devices/other-drivers.ts';
import { DriftReport } from '../drift/index.ts';
import { EventWriter, FailureEvents } from '../events/index.ts';
import { NumaGuard, StatusReport } from '../sandbox/index.ts';
import type { NodeContext } from './node-context.ts';

/** Parts that publish the node's ResourceSlices, and the result of publishing. */
interface NodeSlices {
  sliceApi: SliceApi;
  /** Returns the UID of the Node that `sliceApi` has read last. */
  knownNodeUid: () => string | undefined;
  publisher: SlicePublisher;
  /** Returns why the API server does not have the slices; `undefined` if it has them, `null` if that is not known yet. */
  slicesFailure: () => string | undefined | null;
}

/** Everything that reports to the API server. */
export interface NodeReports extends NodeSlices {
  events: FailureEvents;
  statusWriter: ClaimStatusWriter;
  status: StatusReport;
  numa: NumaGuard;
  drifted: DriftReport;
}

/** Creates the parts that report to the API server. They write in the background, so reports can be late. */
export function createReports(context: NodeContext, devices: DeviceList, metadata: ClaimMetadata): NodeReports {
  const { kube, resources, observer, stack, podUidsOf, drift, clock, logger, random, disk, settings } = context;
  const { driverName: driver, nodeName } = settings;
  const options = { controller: driver, instance: nodeName, clock, logger };
  const onError = (error: unknown) => observer.writeFailed('events', error);
  const events = new FailureEvents(stack.use(new EventWriter(kube, { ...options, onError })));
  const slices = createSlices(context, devices, events);
  const statusWriter = stack.use(
    new ClaimStatusWriter(resources, {
      driver,
      pool: nodeName,
      clock,
      logger,
      random,
      onPersistentFailure: (claim, error) => events.statusNotWritten(claim, podUidsOf(claim), error),
      onError: (error) => observer.writeFailed('status', error),
    }),
  );
  const { store } = disk;
  const numa = new NumaGuard({
    store,
    metadata,
    numaNodes: context.kernel.numaNodes,
    onCompared: (result) => observer.numaCompared(result),
    onMisaligned: (pod, claim, reason) => events.numaMisaligned(pod, claim, reason),
    onCondition: (claim) => {
      try {
        status.report(claim);
      } catch (err) {
        logger.warn({ claim: claimName(claim), err }, 'cannot update claim status');
      }
    },
  });
  const status = new StatusReport({ store, metadata, writer: statusWriter, numa, drift });
  const drifted = new DriftReport({
    record: drift,
    events,
    logger,
    onDrift: (setting, result) => observer.drifted(setting, result),
    onCondition: (claim) => status.report(claim),
  });
  return { ...slices, events, statusWriter, status, numa, drifted };
}

function createSlices(
  { kube, resources, observer, stack, clock, logger, random, settings }: NodeContext,
  devices: DeviceList,
  events: FailureEvents,
): NodeSlices {
  const { driverName: driver, nodeName } = settings;
  const api = createSliceApi(kube, resources, { driver, nodeName });
  let nodeUid: string | undefined;
  const sliceApi = {
    ...api,
    async nodeUid(signal: AbortSignal) {
      nodeUid = await api.nodeUid(signal);
      return nodeUid;
    },
  };
  let slicesFailure: string | undefined | null = null;
  const publishing = afterOthers(sliceApi, () => devices.report.knowsOtherDrivers);
  const publisher = stack.use(
    new SlicePublisher(publishing, {
      driver,
      nodeName,
      clock,
      logger,
      random,
      onError: (error) => {
        slicesFailure = explain(error);
        observer.published(slicesFailure);
        observer.writeFailed('slices', error);
        events.slicesNotPublished(nodeName, error);
        devices.notPublished(error);
      },
      onSynced: () => {
        slicesFailure = undefined;
        observer.published();
        events.slicesNotPublished(nodeName, undefined);
      },
    }),
  );
  return { sliceApi, knownNodeUid: () => nodeUid, publisher, slicesFailure: () => slicesFailure };
}
