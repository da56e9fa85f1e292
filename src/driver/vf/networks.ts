import type {
  InterfaceSysctls,
  LinkEthtool,
  LinkFinder,
  LinkStateConnection,
  LinkTuning,
  NetnsReference,
  PacketSocket,
  RtnlConnection,
} from '../../node/netlink/index.ts';

/**
 * Limits for the links of a pod that are read: more than a router with a VLAN for each subscriber has. A pod with `NET_ADMIN`
 * can create as many links in a second; all can look like its VF, and each can have hundreds of alternative names. A link
 * without such names takes 1.0 to 1.5 KiB.
 */
export const mostPodLinks = { listed: { messages: 4_096, bytes: 6 * 1_048_576 }, decoded: 512 };

/** Requests to a network namespace that sandboxes need. */
export type LinkConnection = LinkStateConnection &
  LinkFinder &
  Pick<
    RtnlConnection,
    'addRoute' | 'createBond' | 'createVrf' | 'deleteLink' | 'linkTable' | 'linkTraffic' | 'vfTraffic'
  >;

/** Socket that sends frames and receives ARP frames. */
export type Packets = Pick<PacketSocket, 'receive' | 'send'> & Disposable;

/** A network namespace that links can be moved to, with a connection for requests. */
interface ConnectedNamespace {
  /** Reference to the namespace for `RtnlConnection.setLink`. */
  readonly netns: NetnsReference;
  readonly connection: LinkConnection;
}

/**
 * An open network namespace. While the handle is open, the kernel does not destroy the namespace, and VFs in it do not return
 * to the host.
 */
export interface NetworkNamespace extends ConnectedNamespace, Disposable {
  /** Whether it is the host's namespace, as for a pod with `hostNetwork: true`. The host's namespace must never be changed. */
  readonly isHost: boolean;
  /** Identity of the namespace, equal for all handles. Paths can be reused for other namespaces. */
  readonly identity: string;
  readonly ethtool: LinkTuning;
  /** Writes sysctls of an interface. @returns the keys that were skipped @throws NetlinkError with the name of the sysctl */
  writeSysctls(
    interfaceName: string,
    settings: InterfaceSysctls,
    options?: { skipMissing?: boolean },
  ): Promise<string[]>;
  /** Reads sysctls of an interface. @returns values by key, without unreadable ones @throws NetlinkError */
  readSysctls(interfaceName: string, keys: readonly string[]): ReadonlyMap<string, string>;
  /** Opens an interface of the namespace for frames. @throws NetlinkError `packet-refused` */
  packets(index: number): Packets;
  /** Calls `onChange` at each change of a link or address, until disposed. Keeps the namespace alive. */
  watch(onChange: () => void): Disposable;
}

export interface NamespaceOpener {
  /**
   * Opens the namespace at a path. @returns `undefined` if there is no namespace
   * @throws NetlinkError `netns-refused` if it is unknown whether there is one
   */
  open(path: string): NetworkNamespace | undefined;
}

export interface NamespaceProbe {
  /**
   * Returns whether the namespace at a path is certainly gone. A plain file at the path proves nothing: the namespace may not
   * be mounted into the driver's container. Too many open files prove nothing, either.
   */
  isGone(path: string): boolean;
  /** Returns whether the namespace with this identity is still at a path; `true` also if that cannot be determined. */
  isStill(identity: string, path: string): boolean;
}

/** The network namespaces of the node: real ones, or simulated ones (`npm run simulate`). */
export interface Networks extends NamespaceOpener, NamespaceProbe {
  /** Namespace of the host, which is always open. */
  readonly host: ConnectedNamespace & { readonly ethtool?: LinkEthtool };
  /** Returns the paths of the namespaces in a directory. */
  list(dir: string): string[];
}

/** Directory in which containerd and CRI-O mount the namespaces of sandboxes. */
export const netnsDir = '/var/run/netns';
