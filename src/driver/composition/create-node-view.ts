import type { SliceApi } from '../../framework/resourceslice/index.ts';
import { readNodeView, type ViewSources } from '../nodeview/node-view.ts';
import { NodeViewWriter } from '../nodeview/node-view-writer.ts';
import type { NodePorts, NodeSettings } from './ports.ts';

export interface NodeViewParts
  extends Pick<NodePorts, 'clock' | 'now' | 'logger' | 'random' | 'kube' | 'observer' | 'disk'>,
    Pick<ViewSources, 'devices' | 'slicesFailure'> {
  settings: NodeSettings;
  sliceApi: Pick<SliceApi, 'nodeUid'>;
}

/** Shows the devices of the node in the API, if that is wanted. */
export function createNodeView(parts: NodeViewParts): NodeViewWriter | undefined {
  const { clock, now, logger, random, kube, observer, disk, settings, devices, slicesFailure, sliceApi } = parts;
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
    onError: (error) => observer.writeFailed('nodes', error),
  });
}
