import type { Container } from './container.ts';
import type { FailurePolicy } from './plugin-options.ts';
import type { LinuxNamespace, PodSandbox } from './pod.ts';
import { loadMessages, type MessageCodec, messageCodec } from './proto.ts';

/** Full names of the two services, and of those of their methods that this library knows. */
export const pluginService = 'nri.pkg.api.v1alpha1.Plugin';
export const runtimeService = 'nri.pkg.api.v1alpha1.Runtime';

/** A pod as on the wire, where fields may be absent. See `proto/nri.proto`. */
export type WirePod = Partial<Omit<PodSandbox, 'namespaces' | 'cgroupParent' | 'cgroupsPath'>> & {
  linux?: { cgroupParent?: string; cgroupsPath?: string; namespaces?: WireNamespace[] };
};

export type WireNamespace = Partial<LinuxNamespace>;

/** Fields that have the same form on the wire and in a container. */
type PlainContainerFields = Pick<
  Container,
  'id' | 'podSandboxId' | 'name' | 'labels' | 'annotations' | 'args' | 'env' | 'pid' | 'exitCode'
>;

export type WireContainer = Partial<PlainContainerFields> & {
  state?: number;
  mounts?: Partial<Container['mounts'][number]>[];
  hooks?: { createRuntime?: Partial<Container['createRuntimeHooks'][number]>[] };
  linux?: { namespaces?: WireNamespace[]; resources?: { cpu?: WireCpu }; cgroupsPath?: string };
  createdAt?: number;
  startedAt?: number;
  finishedAt?: number;
  cdiDevices?: { name?: string }[];
};

interface WireCpu {
  shares?: { value?: number };
  cpus?: string;
  mems?: string;
}

export interface WireConfigureRequest {
  config?: string;
  runtimeName?: string;
  runtimeVersion?: string;
  registrationTimeout?: number;
  requestTimeout?: number;
  nriVersion?: string;
}

/** Answer to `CreateContainer`. */
export interface WireAdjustments {
  adjust?: { mounts?: Partial<Container['mounts'][number]>[]; env?: { key?: string; value?: string }[] };
}

export interface NriCodec {
  registerPluginRequest: MessageCodec<{ pluginName?: string; pluginIdx?: string; nriVersion?: string }>;
  configureRequest: MessageCodec<WireConfigureRequest>;
  configureResponse: MessageCodec<{ events?: number; failurePolicy?: FailurePolicy }>;
  synchronizeRequest: MessageCodec<{ pods?: WirePod[]; containers?: WireContainer[]; more?: boolean }>;
  synchronizeResponse: MessageCodec<{ more?: boolean }>;
  podSandboxRequest: MessageCodec<{ pod?: WirePod }>;
  containerRequest: MessageCodec<{ pod?: WirePod; container?: WireContainer }>;
  createContainerResponse: MessageCodec<WireAdjustments>;
  stateChangeEvent: MessageCodec<{ event?: number; pod?: WirePod; container?: WireContainer }>;
}

/** Reads `nri.proto` and creates the codecs of its messages. @throws NriError `proto-not-loaded` */
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
    createContainerResponse: codec('CreateContainerResponse'),
    stateChangeEvent: codec('StateChangeEvent'),
  };
}
