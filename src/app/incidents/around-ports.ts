import type { KernelPort, KubeletSide, NodePorts } from '../../driver/ports.ts';
import type { LinkConnection, NetworkNamespace } from '../../driver/sandbox/index.ts';
import type { Store } from '../../driver/state/index.ts';
import type { KubeApi, KubeRequest } from '../../framework/kube/index.ts';
import type { MethodCall } from '../../lib/intercept.ts';
import { openCard } from '../../node/sriov/index.ts';

interface AnyCall {
  readonly name: string;
  readonly args: readonly unknown[];
  readonly next: () => unknown;
}

/** A call of the driver to one of its ports. */
export type PortCall = {
  /** What it is about: the path of a network namespace, a PCI address, a sandbox with an interface, or a request. */
  readonly on: () => string;
} & (
  | ({ readonly port: 'host' | 'pod' } & MethodCall<Pick<LinkConnection, 'setLink'>>)
  | ({ readonly port: 'store' } & MethodCall<Store>)
  | ({ readonly port: 'files' } & MethodCall<KubeletSide>)
  | ({ readonly port: 'networks' | 'card' | 'api' | 'cni' } & AnyCall)
);

/** Makes a call by `next`, and returns what the driver gets. */
export type AroundCall = (call: PortCall) => unknown;

/** The same ports, of which every call goes through an interceptor. */
export function aroundPorts(ports: NodePorts, around: AroundCall): NodePorts {
  const { disk, kube, cni, kubelet, kernel } = ports;
  return {
    ...ports,
    kernel: kernelAround(ports, kernel, around),
    disk: { ...disk, store: objectAround('store', disk.store, around) },
    kube: objectAround<KubeApi>('api', kube, around, ([request]) => {
      const { method = 'GET', path } = request as Partial<KubeRequest>;
      return `${method} ${path}`;
    }),
    cni: objectAround('cni', cni, around, ([attachment]) => {
      const { containerId, ifName } = (attachment ?? {}) as { containerId?: string; ifName?: string };
      return containerId === undefined ? '' : `${containerId} ${ifName}`;
    }),
    kubelet: {
      serve: async (plugin, options) => {
        const side = await kubelet.serve(plugin, options);
        return objectAround('files', side, around, ([claim]) => (claim as { name?: string } | undefined)?.name ?? '');
      },
    },
  };
}

const firstText = ([first]: readonly unknown[]) => (typeof first === 'string' ? first : '');

function kernelAround({ clock }: NodePorts, kernel: KernelPort, around: AroundCall): KernelPort {
  const { networks } = kernel;
  const host = { ...networks.host, connection: objectAround('host', networks.host.connection, around, () => 'host') };
  const open: typeof networks.open = (path) => {
    const namespace = networks.open(path);
    return namespace && namespaceAround(namespace, path, around);
  };
  const openOwn = kernel.openCard ?? ((onChange) => openCard('/sys', { clock, onChange }));
  return {
    ...kernel,
    networks: objectAround('networks', networks, around, firstText, { host, open }),
    openCard: (onHang) => {
      const card = openOwn(onHang);
      const part = <T extends object>(each: T) => objectAround('card', each, around, firstText);
      return { ...card, sysfs: part(card.sysfs), binding: part(card.binding) };
    },
  };
}

function namespaceAround(namespace: NetworkNamespace, path: string, around: AroundCall): NetworkNamespace {
  let connection: LinkConnection | undefined;
  return {
    ...{ netns: namespace.netns, isHost: namespace.isHost, identity: namespace.identity },
    // Opened when it is needed.
    get connection() {
      connection ??= objectAround('pod', namespace.connection, around, () => path);
      return connection;
    },
    writeSysctls: (...call) => namespace.writeSysctls(...call),
    packets: (index) => namespace.packets(index),
    watch: (onChange) => namespace.watch(onChange),
    [Symbol.dispose]: () => namespace[Symbol.dispose](),
  };
}

/**
 * Not a copy, as that of `intercept`: the object may have properties that are no methods. Calls that it makes to itself do not
 * pass.
 * @param changes in the place of what the object has
 */
function objectAround<T extends object>(
  port: PortCall['port'],
  target: T,
  around: AroundCall,
  on: (args: readonly unknown[]) => string = () => '',
  changes: Partial<T> = {},
): T {
  const known = new Map<PropertyKey, unknown>();
  return new Proxy(target, {
    get(object, key) {
      const made = known.get(key);
      if (made !== undefined) return made;
      const value: unknown = changes[key as keyof T] ?? Reflect.get(object, key, object);
      if (typeof value !== 'function') return value;
      const name = String(key);
      const method = (...args: unknown[]) => {
        return around({
          port,
          name,
          args,
          on: () => on(args),
          next: () => Reflect.apply(value, object, args),
        } as PortCall);
      };
      known.set(key, method);
      return method;
    },
  });
}
