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
 * Limits for the links of a pod: more than a router with a VLAN for each subscriber has. A pod with `NET_ADMIN` can create
 * as many in a second, all can look like its VF, and each can have hundreds of alternative names. A link without them takes
 * 1.0 to 1.5 KiB.
 */
export const mostPodLinks = { listed: { messages: 4_096, bytes: 6 * 1_048_576 }, decoded: 512 };

/** Requests of the sandbox side to a network namespace. */
export type LinkConnection = LinkStateConnection &
  LinkFinder &
  Pick<
    RtnlConnection,
    'addRoute' | 'createBond' | 'createVrf' | 'deleteLink' | 'linkTable' | 'linkTraffic' | 'vfTraffic'
  >;

/** Sends frames, and receives ARP frames. */
export type Packets = Pick<PacketSocket, 'receive' | 'send'> & Disposable;

/** A network namespace as a target for links, with a connection for requests. */
interface ConnectedNamespace {
  /** Reference for `RtnlConnection.setLink`, to move a link here. */
  readonly netns: NetnsReference;
  readonly connection: LinkConnection;
}

/** An open network namespace. While it is open, the kernel does not destroy it, and VFs in it do not return to the host. */
export interface NetworkNamespace extends ConnectedNamespace, Disposable {
  /** Whether it is the host's namespace, as for a pod with `hostNetwork: true`: that must never be changed. */
  readonly isHost: boolean;
  /** Equal for handles of the same namespace; paths can be reused. */
  readonly identity: string;
  readonly ethtool: LinkTuning;
  /** @returns the keys that were skipped @throws NetlinkError with the name of the setting */
  writeSysctls(
    interfaceName: string,
    settings: InterfaceSysctls,
    options?: { skipMissing?: boolean },
  ): Promise<string[]>;
  /** @returns values by key, without unreadable ones @throws NetlinkError */
  readSysctls(interfaceName: string, keys: readonly string[]): ReadonlyMap<string, string>;
  /** Opens one of its interfaces for frames. @throws NetlinkError `packet-refused` */
  packets(index: number): Packets;
  /** Calls back at each change of a link or address, until disposed of. Keeps the namespace alive. */
  watch(onChange: () => void): Disposable;
}

export interface NamespaceOpener {
  /**
   * @returns `undefined` if there is no namespace at the path
   * @throws NetlinkError `netns-refused`: unknown whether there is one
   */
  open(path: string): NetworkNamespace | undefined;
}

export interface NamespaceProbe {
  /**
   * Returns whether the namespace at a path is certainly gone. A file that is no namespace may be one that is not mounted
   * into our container, and too many open files are no evidence.
   */
  isGone(path: string): boolean;
  /** Returns whether the namespace with this identity is still at a path; true also if that cannot be determined. */
  isStill(identity: string, path: string): boolean;
}

/** The network namespaces of the node: the kernel's, or simulated ones (`npm run simulate`). */
export interface Networks extends NamespaceOpener, NamespaceProbe {
  /** Namespace of the host, which stays open. */
  readonly host: ConnectedNamespace & { readonly ethtool?: LinkEthtool };
  /** Returns the paths of the namespaces in a directory. */
  list(dir: string): string[];
}

/** Directory in which containerd and CRI-O mount the namespaces of sandboxes. */
export const netnsDir = '/var/run/netns';
