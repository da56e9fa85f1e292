import { existsSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { NetlinkError } from './errors.ts';
import { EthtoolConnection } from './ethtool.ts';
import { NetnsHandle } from './netns.ts';
import { NetworkWatch } from './network-watch.ts';
import { EtherType, PacketSocket } from './packet-socket.ts';
import { RtnlConnection } from './rtnl.ts';
import { type InterfaceSysctls, readInterfaceSysctls, writeInterfaceSysctls } from './sysctl.ts';

interface KernelNetworksOptions {
  /** Path of the host's `/proc/sys`, which must be writable. */
  procSysDir: string;
  /** Path of the host's network namespace. Default: the namespace of the driver. */
  hostPath?: string;
}

/** Real network namespaces of this machine. */
export class KernelNetworks implements Disposable {
  readonly host: {
    readonly netns: NetnsHandle;
    readonly connection: RtnlConnection;
    readonly ethtool: EthtoolConnection;
  };
  readonly #options: KernelNetworksOptions;

  /** @throws NetlinkError if the host's namespace cannot be opened */
  constructor(options: KernelNetworksOptions) {
    this.#options = options;
    const { hostPath } = options;
    const netns = hostPath === undefined ? NetnsHandle.own() : NetnsHandle.open(hostPath);
    this.host = { netns, connection: RtnlConnection.open(netns), ethtool: EthtoolConnection.open(netns) };
  }

  /**
   * Opens the namespace at a path. @returns `undefined` if there is no namespace
   * @throws NetlinkError `netns-refused` if it is unknown whether there is one
   */
  open(path: string) {
    const netns = NetnsHandle.openIfThere(path);
    return netns && openNamespace(netns, this.host.netns, this.#options.procSysDir);
  }

  isGone(path: string): boolean {
    try {
      NetnsHandle.open(path)[Symbol.dispose]();
      return false;
    } catch (error) {
      // Only a visible directory shows that a namespace is gone: the runtime's directory may not be mounted into the driver's
      // container.
      return error instanceof NetlinkError && error.code === 'netns-missing' && existsSync(dirname(path));
    }
  }

  /** Returns whether a namespace is still at a path, without opening it: this is called every second for each pod with a VF. */
  isStill(identity: string, path: string): boolean {
    try {
      const there = statSync(path, { bigint: true, throwIfNoEntry: false });
      return there !== undefined && identityOf(there) === identity;
    } catch {
      return true;
    }
  }

  list(dir: string): string[] {
    const names = existsSync(dir) ? readdirSync(dir) : [];
    return names.map((name) => join(dir, name));
  }

  [Symbol.dispose](): void {
    this.host.ethtool[Symbol.dispose]();
    this.host.connection[Symbol.dispose]();
    this.host.netns[Symbol.dispose]();
  }
}

/**
 * Opens a network namespace. While the handle is open, the kernel does not destroy the namespace, and VFs in it do not return
 * to the host.
 * @param procSysDir see {@link KernelNetworksOptions}
 */
function openNamespace(netns: NetnsHandle, host: NetnsHandle, procSysDir: string) {
  let connection: RtnlConnection | undefined;
  let ethtool: EthtoolConnection | undefined;
  return {
    netns,
    isHost: netns.equals(host),
    identity: identityOf(netns.inode),
    get connection(): RtnlConnection {
      connection ??= RtnlConnection.open(netns);
      return connection;
    },
    get ethtool(): EthtoolConnection {
      ethtool ??= EthtoolConnection.open(netns);
      return ethtool;
    },
    writeSysctls: (interfaceName: string, settings: InterfaceSysctls, options?: { skipMissing?: boolean }) =>
      writeInterfaceSysctls(netns, interfaceName, settings, { ...options, procSysDir }),
    readSysctls: (interfaceName: string, keys: readonly string[]) =>
      readInterfaceSysctls(netns, interfaceName, keys, { procSysDir }),
    packets: (index: number) => new PacketSocket(netns, index, EtherType.arp),
    watch: (onChange: () => void) => NetworkWatch.open(netns, onChange),
    [Symbol.dispose]() {
      connection?.[Symbol.dispose]();
      connection = undefined;
      ethtool?.[Symbol.dispose]();
      ethtool = undefined;
      netns[Symbol.dispose]();
    },
  };
}

function identityOf({ dev, ino }: NetnsHandle['inode']): string {
  return `${dev}:${ino}`;
}
