export { watchEventLoop } from './event-loop-watch.ts';
export { serveHttp } from './http-server.ts';
export { InstanceToken } from './instance-token.ts';
export { Metrics } from './metrics.ts';
export { observeFiles, observeHandlers, observePlugin, observerOf } from './observe.ts';
export { Operations } from './operations.ts';
export { Readiness } from './readiness.ts';
export { SuccessorReport } from './successor-report.ts';
