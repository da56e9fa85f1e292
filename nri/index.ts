/** NRI plugins for containerd and CRI-O, and the ttrpc they speak. See README.md. */

export type { Container, ContainerState } from './container.ts';
export type { DecodeOptions, OmittedField } from './decoded-fields.ts';
export { ConnectionClosedError, NriError, OptionError } from './errors.ts';
export type { CallContext, ContainerAdjustment, ContainerHandler, PluginHandlers, PodHandler } from './handlers.ts';
export { type Logger, silentLogger } from './logger.ts';
export { MuxConnection } from './mux/frame.ts';
export { Mux, type MuxOptions } from './mux/mux.ts';
export { createPlugin, type Plugin } from './plugin.ts';
export { type BackoffOptions, defaultSocketPath, type FailurePolicy, type PluginOptions } from './plugin-options.ts';
export type { LinuxNamespace, PodSandbox } from './pod.ts';
// The layers below, for other ttrpc services and for tests. Their API may change: pin the exact version.
export { defaultProtoDir } from './proto.ts';
export type { RuntimeInfo } from './runtime-info.ts';
export type { Channel, ChannelReceiver } from './ttrpc/channel.ts';
export { type CallOptions, TtrpcClient, type TtrpcClientOptions } from './ttrpc/client.ts';
export { createTtrpcCodec, type TtrpcCodec } from './ttrpc/codec.ts';
export {
  type CallInfo,
  type Method,
  type Reply,
  type Services,
  TtrpcServer,
  type TtrpcServerOptions,
} from './ttrpc/server.ts';
export { CallTimeoutError, StatusCode, TtrpcError, TtrpcProtocolError } from './ttrpc/status.ts';
