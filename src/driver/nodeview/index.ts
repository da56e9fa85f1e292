export { type NodeView, readNodeView, type ViewSources } from './node-view.ts';
export { NodeViewWriter, type StoredView } from './node-view-writer.ts';
