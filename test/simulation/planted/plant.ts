import type { Plugin, PluginHandlers, PodSandbox } from '../../../nri/index.ts';
import type { KubeletConnection, NodeParts, NodePorts } from '../../../src/driver/composition/ports.ts';
import type { KubeRequest } from '../../../src/framework/kube/index.ts';
import type { DraPlugin } from '../../../src/framework/kubeletplugin/index.ts';
import type { Needs } from './needs.ts';

/** Directories of the driver. */
export interface Directories {
  dataDir: string;
  cdiDir: string;
}

/** Puts a bug between the driver and its ports. */
export type Plant = (ports: NodePorts, directories: Directories) => NodePorts;

/** A bug that can be switched on for a simulation: no code is changed for it. */
export interface PlantedBug {
  name: string;
  /** The defect that it reintroduces. */
  what: string;
  plant: Plant;
  /** What the plan of a schedule that shows it must have, for rare ones: a search passes over the others. */
  needs?: Needs;
}

/** An object with other methods in the place of some. Calls that it makes to itself are not affected. */
export function altered<T extends object>(object: T, changes: Partial<T>): T {
  return new Proxy(object, {
    get(target, key) {
      const change = changes[key as keyof T];
      if (change !== undefined) return change;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** Several bugs at once. */
export function all(...plants: readonly Plant[]): Plant {
  return (ports, directories) => plants.reduce((before, plant) => plant(before, directories), ports);
}

/** Changes a part of the driver. */
export function inPart<Name extends keyof NodeParts>(
  name: Name,
  change: (part: NodeParts[Name], ports: NodePorts, directories: Directories) => NodeParts[Name],
): Plant {
  return (ports, directories) => ({
    ...ports,
    decorate: (each, part) => {
      const before = ports.decorate?.(each, part) ?? part;
      return each === (name as string) ? (change(before as never, ports, directories) as never) : before;
    },
  });
}

/** Changes what is done to VFs. */
export function inControl(change: (control: NodeParts['control']) => Partial<NodeParts['control']>): Plant {
  return inPart('control', (control) => altered(control, change(control)));
}

/** Leaves out a task of reconciliation. */
export function withoutTask(name: string): Plant {
  return inPart('task', (task) => (task.name === name ? { ...task, run: async () => undefined } : task));
}

/** Changes the calls of CNI plugins. */
export function inCni(change: (cni: NodePorts['cni']) => Partial<NodePorts['cni']>): Plant {
  return (ports) => ({ ...ports, cni: altered(ports.cni, change(ports.cni)) });
}

type Store = NodePorts['disk']['store'];

/** Changes the store. */
export function inStore(change: (store: Store, ports: NodePorts) => Partial<Store>): Plant {
  return (ports) => {
    const { store } = ports.disk;
    return { ...ports, disk: { ...ports.disk, store: altered(store, change(store, ports)) } };
  };
}

/** Changes the locks of claims. */
export function inLocks(run: (locks: NodePorts['disk']['locks']) => NodePorts['disk']['locks']['run']): Plant {
  return (ports) => {
    const { locks } = ports.disk;
    return { ...ports, disk: { ...ports.disk, locks: altered(locks, { run: run(locks) }) } };
  };
}

/** Changes the driver as the kubelet calls it. */
export function inPlugin(change: (plugin: DraPlugin) => Partial<DraPlugin>): Plant {
  return inKubelet((serve) => (plugin, options) => serve({ ...plugin, ...change(plugin) }, options));
}

/** Changes the calls of the driver to the plugin helper. */
export function inHelper(
  change: (helper: KubeletConnection, ports: NodePorts, directories: Directories) => Partial<KubeletConnection>,
): Plant {
  return (ports, directories) =>
    inKubelet((serve) => async (...call) => {
      const helper = await serve(...call);
      return { ...helper, ...change(helper, ports, directories) };
    })(ports, directories);
}

function inKubelet(change: (serve: NodePorts['kubelet']['serve']) => NodePorts['kubelet']['serve']): Plant {
  return (ports) => ({ ...ports, kubelet: { serve: change(ports.kubelet.serve) } });
}

type ServedMetadata = Parameters<NodePorts['kubelet']['serve']>[1]['metadata'];

/** Changes what the plugin helper lays down of metadata. */
export function inMetadata(
  change: (metadata: ServedMetadata, directories: Directories) => Partial<ServedMetadata>,
): Plant {
  return (ports, directories) =>
    inKubelet((serve) => (plugin, options) => {
      const metadata = altered(options.metadata, change(options.metadata, directories));
      return serve(plugin, { ...options, metadata });
    })(ports, directories);
}

/** Changes the driver as the runtime calls it. */
export function inHandlers(change: (handlers: PluginHandlers, ports: NodePorts) => PluginHandlers): Plant {
  return (ports) => ({
    ...ports,
    runtime: {
      connect: (handlers, decode): Pick<Plugin, 'start' | 'whenConnected'> & AsyncDisposable =>
        ports.runtime.connect({ ...handlers, ...change(handlers, ports) }, decode),
    },
  });
}

/** Changes all sandboxes that the runtime shows. */
export function inSandboxes(change: (pod: PodSandbox) => PodSandbox): Plant {
  return inHandlers((handlers) => ({
    synchronize: (pods, containers, context) => handlers.synchronize?.(pods.map(change), containers, context),
    runPodSandbox: (pod, context) => handlers.runPodSandbox?.(change(pod), context),
    stopPodSandbox: (pod, context) => handlers.stopPodSandbox?.(change(pod), context),
    removePodSandbox: (pod, context) => handlers.removePodSandbox?.(change(pod), context),
    createContainer: (pod, container, context) => handlers.createContainer?.(change(pod), container, context),
  }));
}

type HostConnection = NodePorts['kernel']['networks']['host']['connection'];

/** Changes the host's rtnetlink. */
export function onHost(change: (connection: HostConnection) => Partial<HostConnection>): Plant {
  return (ports) => {
    const { networks } = ports.kernel;
    const host = { ...networks.host, connection: altered(networks.host.connection, change(networks.host.connection)) };
    return { ...ports, kernel: { ...ports.kernel, networks: altered(networks, { host }) } };
  };
}

type KernelNetworks = NodePorts['kernel']['networks'];

/** Changes the namespaces of pods. */
export function onNamespaces(change: (networks: KernelNetworks) => Partial<KernelNetworks>): Plant {
  return (ports) => {
    const { networks } = ports.kernel;
    return { ...ports, kernel: { ...ports.kernel, networks: altered(networks, change(networks)) } };
  };
}

type PodNamespace = NonNullable<ReturnType<KernelNetworks['open']>>;

/** Changes each namespace that is opened. */
export function inNamespaces(change: (namespace: PodNamespace, ports: NodePorts) => Partial<PodNamespace>): Plant {
  return (ports, directories) =>
    onNamespaces((networks) => ({
      open(path) {
        const namespace = networks.open(path);
        // Not a proxy: `using` does not find a method of one.
        return namespace && { ...namespace, ...change(namespace, ports) };
      },
    }))(ports, directories);
}

/** Changes rtnetlink in the namespaces of pods. */
export function inPods(change: (connection: PodNamespace['connection']) => Partial<PodNamespace['connection']>): Plant {
  return inNamespaces(({ connection }) => ({ connection: altered(connection, change(connection)) }));
}

/** Changes requests to the API server. */
export function inRequests(
  answer: (
    request: KubeRequest,
    send: (request: KubeRequest) => Promise<unknown>,
    ports: NodePorts,
  ) => Promise<unknown>,
): Plant {
  return (ports) => {
    const { kube } = ports;
    const request = async <T>(each: KubeRequest) => (await answer(each, (sent) => kube.request(sent), ports)) as T;
    return { ...ports, kube: { ...kube, request } };
  };
}
