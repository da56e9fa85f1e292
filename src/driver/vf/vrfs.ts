import { type Link, NetlinkError, unlessThere } from '../../node/netlink/index.ts';
import { SandboxError, type VrfConfig } from '../model/index.ts';
import { writeSettings } from './configure-link.ts';
import { createOnce, linkToCreate } from './created-links.ts';
import type { SettingsConfig } from './interface-settings.ts';
import type { LinkConnection, NetworkNamespace } from './networks.ts';
import { type AttachTarget, podOf } from './strategy.ts';

/** Metric of the last route of a VRF's table: every other route precedes it. Source: Linux Documentation/networking/vrf.rst. */
const lastMetric = 4_278_198_272;
/** Error codes of a kernel without IPv6. */
const noIpv6 = ['ENOTSUP', 'EAFNOSUPPORT'];

/**
 * Makes a link in a pod a member of a VRF, and creates the VRF for its first member. Idempotent. Must be called before the
 * link has addresses: the kernel sets a link that is up down and up again, which removes IPv6 addresses and routes. The VRF
 * stays until the pod's namespace ends, since other claims may use it.
 * @param link link of the VF, or of its bond
 * @param config configuration of the link. The VRF gets the same sysctls, since the VRF decides which packets are forwarded
 * @throws NetlinkError `netlink-refused`, with `ENOTSUP` if the kernel has no VRFs; SandboxError `vrf-refused`
 */
export async function joinVrf(
  task: AttachTarget,
  namespace: NetworkNamespace,
  link: Link,
  config: SettingsConfig & { vrf: VrfConfig },
): Promise<void> {
  const { connection } = namespace;
  const { name, table } = config.vrf;
  const make = (temporary: string) => connection.createVrf({ name: temporary, table });
  const creating = createOnce(connection, linkToCreate('vrf', task.place.podUid, name), name, make);
  const vrf = await creating.catch((error: unknown) => {
    throw error instanceof NetlinkError && error.errno === 'EEXIST' ? nameTaken(task, name, error) : error;
  });
  if (vrf?.vrfTable !== table) throw changed(task, name, table, vrf);
  await writeSettings(namespace, vrf, config);
  await connection.setLink(vrf.index, { up: true });
  await closeTable(connection, vrf.index, table);
  await connection.setLink(link.index, { master: vrf.index });
}

/**
 * Adds a last route that makes all other destinations unreachable. Without it, the kernel would go on to the pod's other
 * tables, and packets of the VRF would leave by the pod's default route.
 */
async function closeTable(connection: LinkConnection, index: number, table: number): Promise<void> {
  for (const destination of ['0.0.0.0/0', '::/0']) {
    const route = { index, destination, table, priority: lastMetric, scope: 'global', isUnreachable: true } as const;
    await unlessThere(connection.addRoute(route), async () => true).catch((error: unknown) => {
      const isAbsent = error instanceof NetlinkError && noIpv6.includes(error.errno ?? '');
      if (destination !== '::/0' || !isAbsent) throw error;
    });
  }
}

function nameTaken(task: AttachTarget, name: string, cause: NetlinkError): SandboxError {
  return refused(task, name, 'the pod has a link of that name that netdra has not made', {
    cause,
    hint: 'give `vrf.name` of the claim another value, or let the pod not create that link',
  });
}

function changed(task: AttachTarget, name: string, table: number, found: Link | undefined): SandboxError {
  const what = found === undefined ? 'it has disappeared' : `it has table ${found.vrfTable ?? 'unknown'}, not ${table}`;
  return refused(task, name, what, { retriable: true, hint: 'a process in the pod has changed or deleted the VRF' });
}

function refused(
  { device: { name: device, pciAddress }, place }: AttachTarget,
  vrf: string,
  reason: string,
  details: { cause?: unknown; retriable?: boolean; hint: string },
): SandboxError {
  const message = `device ${device} (${pciAddress}) cannot join VRF ${vrf} in ${podOf(place)}: ${reason}`;
  return new SandboxError('vrf-refused', message, { ...details, device });
}
