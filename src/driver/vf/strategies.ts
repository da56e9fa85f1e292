import { defined } from '../../lib/defined.ts';
import {
  canonicalCidr,
  type Link,
  maxReportedAddresses,
  type NetworkState,
  type RouteSpec,
} from '../../node/netlink/index.ts';
import { type AttachMode, type CreatedLink, groupOf, type StoredDevice } from '../model/index.ts';
import type { Announcements } from './announcements.ts';
import { joinBond } from './bonds.ts';
import { findDifferences } from './claim-differences.ts';
import type { CniAttacher } from './cni-attacher.ts';
import { configureLink, type LinkConfig, toNewRoute, writeSettings } from './configure-link.ts';
import { linkToCreate } from './created-links.ts';
import { applyEthtool } from './ethtool-settings.ts';
import { pfSettingsOf } from './pf-settings.ts';
import {
  type AttachStrategy,
  type AttachTask,
  type MemberState,
  missingError,
  orNameTaken,
  type VfState,
} from './strategy.ts';
import type { VfHost, VfLinks } from './vf-links.ts';
import { joinVrf } from './vrfs.ts';

/** Parts that strategies use to attach VFs. */
interface StrategyParts {
  links: VfLinks;
  vfs: VfHost;
  cni: CniAttacher;
  announcements: Announcements;
}

/** A strategy for each value of `attach`, and one for VFs in user space. */
export type Strategies = Readonly<Record<AttachMode | 'user-space', AttachStrategy>>;

export function createStrategies(parts: StrategyParts): Strategies {
  return {
    netlink: netlinkStrategy(parts),
    cni: cniStrategy(parts),
    observe: observeStrategy(parts),
    'user-space': userSpaceStrategy(parts),
  };
}

/** Strategy of `attach: netlink`: the driver moves the VF and configures it; an IPAM plugin may give it addresses. */
function netlinkStrategy({ links, vfs, cni, announcements }: StrategyParts): AttachStrategy {
  const readInterface = readerOfInterfaces(vfs);
  return {
    movesDevice: true,
    creates: (claimUid, device) => {
      const group = groupOf(device);
      return group === undefined ? undefined : linkToCreate('bond', claimUid, group);
    },
    async attach(task) {
      const { device, place, pod, signal, created: bond } = task;
      const { macAddress, ...config } = device.config;
      // The attachment is stored before the VF is moved: without an attachment, the VF is not in the pod.
      const found = device.attachment === undefined ? undefined : await pod.find(device);
      const link = await (found === undefined
        ? links.attach(await links.snapshot(task), task)
        : links.rename(found, task));
      await applyEthtool(pod.namespace.ethtool, link.index, config.ethtool ?? {});
      // Sysctls are written first, since the daemon of the plugin dhcp sets the link up.
      if (config.ipam !== undefined) await writeSettings(pod.namespace, link, config);
      const { addresses, routes } = await cni.addresses(device, place, signal);
      const wanted: LinkConfig = {
        ...config,
        // A bond has the MAC address of one of its members.
        ...(bond === undefined && defined({ macAddress })),
        ...defined({ hostConfig: device.before?.link?.hostConfig }),
        addresses: [...(config.addresses ?? []), ...addresses],
        routes: [...(config.routes ?? []).map(toNewRoute), ...inTable(config.vrf?.table, routes)],
      };
      const used = await joinLinks(task, link, wanted);
      await configureLink(pod.namespace, used, wanted);
      pod.follow();
      if (bond !== undefined) pod.changed();
      const state = await (bond === undefined
        ? withHostFacts(vfs, device, await pod.stateAfterChange(device, link))
        : readInterface(device, pod));
      if (state === undefined) throw missingError(task, `it disappeared from ${used.name} while it was configured`);
      await announcements.configured(device, pod, state);
      return state;
    },
    async read(device, pod, known) {
      const state = await readInterface(device, pod);
      if (state === undefined) return undefined;
      await announcements.read(device, pod, state);
      const conflicts = announcements.conflictsOf(device);
      const { interfaceName, member } = state;
      const differences =
        known &&
        interfaceName &&
        (await findDifferences(pod.namespace, interfaceName, device.config, member?.interfaceName));
      return { ...state, ...(conflicts.size > 0 && { conflicts }), ...(differences && { differences }) };
    },
    async release(device, attachment) {
      announcements.forget(device);
      await cni.remove(device, attachment);
    },
  };
}

/** Returns the routes of a plugin, with the VRF's table if they name none. */
function inTable(table: number | undefined, routes: readonly RouteSpec[]): RouteSpec[] {
  return routes.map((route) => ({ ...defined({ table }), ...route }));
}

/**
 * Makes the VF a member of its bond, and the bond, or the VF without one, a member of its VRF. @returns the link that gets
 * addresses
 */
async function joinLinks(task: AttachTask, link: Link, config: LinkConfig): Promise<Link> {
  const { device, created } = task;
  const { namespace } = task.pod;
  const join = async (bond: CreatedLink) =>
    await orNameTaken(task, groupOf(device) ?? bond.alias, joinBond(namespace.connection, link, bond, device));
  const used = created === undefined ? link : await join(created);
  if (config.vrf !== undefined) await joinVrf(task, namespace, used, { ...config, vrf: config.vrf });
  return used;
}

/** Strategy of `attach: cni`: the plugins of the claim's network move the VF, configure it, and move it back. */
function cniStrategy({ links, vfs, cni }: StrategyParts): AttachStrategy {
  return {
    movesDevice: true,
    async attach(task) {
      const { device, place, pod, signal } = task;
      const found = await pod.find(device);
      // Plugins release the VF before it is configured on the host: they may reset the VF's settings in a DEL.
      if (found === undefined && device.attachment !== undefined) await cni.removeLost(device, place, signal);
      const { hardwareAddress } = found ?? (await links.snapshot(task));
      // The plugins are called even if the VF is in the pod: the runner undoes and repeats an ADD that was cut short.
      await cni.add(device, place, signal);
      pod.changed();
      pod.follow();
      const link = await pod.find(device, hardwareAddress);
      if (link !== undefined) return await withHostFacts(vfs, device, await pod.stateOf(link));
      throw missingError(task, `the CNI plugins of its claim have not moved the device into ${place.netnsPath}`);
    },
    read: readerOfInterfaces(vfs),
    release: (device, attachment) => cni.remove(device, attachment),
  };
}

/** Strategy of `attach: observe`: another component, such as Multus, moves the VF into the pod and back. */
function observeStrategy({ vfs }: StrategyParts): AttachStrategy {
  const read = readerOfInterfaces(vfs);
  return {
    // The component that has moved the VF moves it back, after the driver's hook. If that fails, reconciliation does it
    // (ObservedVfs).
    movesDevice: false,
    async attach({ device, place, pod, record }) {
      const state = await read(device, pod);
      if (state === undefined) {
        throw missingError(
          { device, place },
          `attach is "observe", but no component has moved the device into ${place.netnsPath}`,
        );
      }
      record();
      return state;
    },
    read,
  };
}

/** Strategy for VFs that are bound to vfio and have no interface to move. The application configures them from the metadata. */
function userSpaceStrategy({ vfs, cni }: StrategyParts): AttachStrategy {
  /** Returns the state of a VF from its configuration. @param given addresses of the IPAM plugin */
  const describe = async (device: StoredDevice, given: readonly string[]): Promise<VfState> => {
    const { interfaceName, addresses = [], mtu } = device.config;
    const info = await pfSettingsOf(vfs, device, ['vlan', 'hardwareAddress']);
    return {
      hardwareAddress: info?.hardwareAddress,
      ips: [...new Set([...addresses, ...given].map(canonicalCidr))].sort().slice(0, maxReportedAddresses),
      tentative: false,
      ...defined({ interfaceName, mtuBytes: mtu, vlan: info?.vlan?.id }),
    };
  };
  return {
    movesDevice: false,
    async attach({ device, place, record, reconfigure, signal }) {
      const { attachment } = device;
      if (attachment !== undefined && attachment.sandboxId !== place.sandboxId) await reconfigure();
      record();
      const { addresses } = await cni.addresses(device, place, signal);
      return await describe(device, addresses);
    },
    read: async (device, _, known) => device.attachment && (await describe(device, known?.ips ?? [])),
    release: (device, attachment) => cni.remove(device, attachment),
  };
}

/** Returns a reader for VFs that were attached with an interface. */
function readerOfInterfaces(vfs: StrategyParts['vfs']): AttachStrategy['read'] {
  return async (device, pod) => {
    pod.follow();
    const link = await pod.findAttached(device);
    if (link === undefined) return undefined;
    const state = groupOf(device) === undefined ? await pod.stateOf(link) : await pod.stateOfMember(device, link);
    return state && (await withHostFacts(vfs, device, state));
  };
}

/** Adds facts that the pod's network namespace does not show. */
async function withHostFacts(
  vfs: StrategyParts['vfs'],
  device: StoredDevice,
  state: NetworkState & { member?: MemberState },
): Promise<VfState> {
  const info = await pfSettingsOf(vfs, device, ['vlan']);
  return { ...state, ...defined({ vlan: info?.vlan?.id, rdmaDevice: await vfs.rdmaDevice(device) }) };
}
