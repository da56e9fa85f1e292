export { watchEventLoop } from './event-loop-watch.ts';
export { type HttpServer, parseAddress, serveHttp } from './http-server.ts';
export { InstanceToken } from './instance-token.ts';
export { Metrics, type MetricsOptions } from './metrics.ts';
export { observeFiles, observeHandlers, observePlugin, observerOf } from './observe.ts';
export { Operations, type OperationsOptions } from './operations.ts';
export { type ConditionState, conditions, Readiness, type ReadinessCondition } from './readiness.ts';
