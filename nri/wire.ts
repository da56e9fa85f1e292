import { loadMessages, type MessageCodec, messageCodec } from './proto.ts';

/** Full names of the two services, and the methods that we know of. */
export const pluginService = 'nri.pkg.api.v1alpha1.Plugin';
export const runtimeService = 'nri.pkg.api.v1alpha1.Runtime';

/** Messages as they are on the wire: what is absent there is absent here. See `proto/nri.proto`. */
export interface WirePod {
  id?: string;
  name?: string;
  uid?: string;
  namespace?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  runtimeHandler?: string;
  linux?: { cgroupParent?: string; cgroupsPath?: string; namespaces?: WireNamespace[] };
  pid?: number;
  ips?: string[];
}

export interface WireNamespace {
  type?: string;
  path?: string;
}

export interface WireContainer {
  id?: string;
  podSandboxId?: string;
  name?: string;
  state?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  args?: string[];
  env?: string[];
  mounts?: { destination?: string; type?: string; source?: string; options?: string[] }[];
  hooks?: { createRuntime?: { path?: string; args?: string[] }[] };
  linux?: { namespaces?: WireNamespace[]; cgroupsPath?: string };
  pid?: number;
  createdAt?: number;
  startedAt?: number;
  finishedAt?: number;
  exitCode?: number;
  cdiDevices?: { name?: string }[];
}

export interface WireConfigureRequest {
  config?: string;
  runtimeName?: string;
  runtimeVersion?: string;
  registrationTimeout?: number;
  requestTimeout?: number;
  nriVersion?: string;
}

export interface NriCodec {
  registerPluginRequest: MessageCodec<{ pluginName?: string; pluginIdx?: string; nriVersion?: string }>;
  configureRequest: MessageCodec<WireConfigureRequest>;
  configureResponse: MessageCodec<{ events?: number }>;
  synchronizeRequest: MessageCodec<{ pods?: WirePod[]; containers?: WireContainer[]; more?: boolean }>;
  synchronizeResponse: MessageCodec<{ more?: boolean }>;
  podSandboxRequest: MessageCodec<{ pod?: WirePod }>;
  containerRequest: MessageCodec<{ pod?: WirePod; container?: WireContainer }>;
  stateChangeEvent: MessageCodec<{ event?: number; pod?: WirePod; container?: WireContainer }>;
}

/**
 * Reads `nri.proto` and creates the codecs of its messages.
 * @throws NriError `proto-not-loaded`
 */
export function createNriCodec(protoDir?: string): NriCodec {
  const messages = loadMessages('nri.proto', protoDir);
  const codec = <T extends object>(type: string): MessageCodec<T> =>
    messageCodec<T>(messages, `nri.pkg.api.v1alpha1.${type}`);
  return {
    registerPluginRequest: codec('RegisterPluginRequest'),
    configureRequest: codec('ConfigureRequest'),
    configureResponse: codec('ConfigureResponse'),
    synchronizeRequest: codec('SynchronizeRequest'),
    synchronizeResponse: codec('SynchronizeResponse'),
    podSandboxRequest: codec('PodSandboxRequest'),
    containerRequest: codec('ContainerRequest'),
    stateChangeEvent: codec('StateChangeEvent'),
  };
}
