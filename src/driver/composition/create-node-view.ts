import type { SliceApi } from '../../framework/resourceslice/index.ts';
import type { DeviceList } from '../devices/device-list.ts';
import { readNodeView, type ViewSources } from '../nodeview/node-view.ts';
import { NodeViewWriter } from '../nodeview/node-view-writer.ts';
import type { NodeContext } from './node-context.ts';

export interface NodeViewParts {
  devices: DeviceList;
  slicesFailure: ViewSources['slicesFailure'];
  sliceApi: SliceApi;
  knownNodeUid: () => string | undefined;
}

/** Creates the writer of NodeNetworkDevices; `undefined` if the settings turn it off. */
export function createNodeView(context: NodeContext, parts: NodeViewParts): NodeViewWriter | undefined {
  const { clock, now, logger, random, kube, observer, disk, settings } = context;
  const { devices, slicesFailure, sliceApi, knownNodeUid } = parts;
  const { driverName: driver, nodeName: node, version } = settings;
  if (!settings.nodeView) return undefined;
  const sources = { driver, version, devices, store: disk.store, slicesFailure };
  return new NodeViewWriter(kube, {
    driver,
    node,
    clock,
    now,
    logger,
    random,
    read: () => readNodeView(sources),
    nodeUid: (signal) => sliceApi.nodeUid(signal),
    knownNodeUid,
    onError: (error) => observer.writeFailed('nodes', error),
  });
}
