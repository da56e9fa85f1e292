import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { type ClaimIdentity, claimName, isSameDevice } from '../../framework/metadata/index.ts';
import { quickCanonicalAddress } from '../../node/netlink/index.ts';
import { groupOf, refusal, type StoredClaim, type StoredDevice } from '../model/index.ts';

interface Holder {
  identity: ClaimIdentity;
  devices: readonly StoredDevice[];
}

/** A device, and the claim that has it. */
interface Held {
  device: StoredDevice;
  holder: Holder;
}

/** Devices of a PF, grouped to find those that conflict with each other. */
interface SharedPort {
  /** Devices in a bond of mode 802.3ad; `others` are the rest. */
  lacp: Held[];
  others: Held[];
  /** Devices by VLAN and IP address, and by VLAN and MAC address. */
  same: Map<string, Held[]>;
}

/**
 * Compares a claim with the other claims of the node that have VFs of the same ports.
 * @param claims claims in the store
 * @returns conflicts that are allowed: one line each, for users, with the first other device. Refusing them would keep the
 * new pod of a rolling update from starting while the old pod has its claim; also, pods may share an address on purpose.
 * @throws DriverError `port-taken` for a second bond in mode 802.3ad over a port: the switch would see two LACP systems on
 * one link, and may block the network of the pod that has the first bond
 */
export function checkPorts(
  claim: AllocatedClaim,
  devices: readonly StoredDevice[],
  claims: () => readonly StoredClaim[],
): string[] {
  const holders = claims().filter(
    ({ identity, state }) => identity.uid !== claim.identity.uid && state !== 'unpreparing',
  );
  const own: Holder = { identity: claim.identity, devices };
  const ports = portsOf(devices, [own, ...holders]);
  const found = new Map<string, string>();
  for (const device of devices) {
    const port = ports.get(device.pfAddress ?? '');
    if (port === undefined) continue;
    const isOther = (held: Held) => !isSameDevice(held.device, device);
    checkLacp(claim, device, port.lacp.find(isOther));
    // Members of the same bond are skipped: they share its addresses.
    const group = groupOf(device);
    const isMember = (held: Held) => held.holder === own && group !== undefined && groupOf(held.device) === group;
    for (const [problem, held] of problemsOf(device, port, (each) => isOther(each) && !isMember(each)))
      if (!found.has(problem)) found.set(problem, `${problem} of ${describe(held)}`);
  }
  return [...found.values()];
}

/**
 * Returns the ports of a claim's devices by PF address. Visits each device once: comparing each pair of devices could block
 * the event loop for seconds on a node with hundreds of devices.
 * @param holders holders of all devices, the claim first
 */
function portsOf(devices: readonly StoredDevice[], holders: readonly Holder[]): Map<string, SharedPort> {
  const ports = new Map<string, SharedPort>();
  const wanted = new Set(devices.flatMap(keysOf));
  for (const { pfAddress } of devices)
    if (pfAddress !== undefined) ports.set(pfAddress, { lacp: [], others: [], same: new Map() });
  for (const holder of holders) {
    for (const device of holder.devices) {
      const port = ports.get(device.pfAddress ?? '');
      if (port === undefined) continue;
      const held = { device, holder };
      (isLacp(device) ? port.lacp : port.others).push(held);
      for (const key of wanted.size === 0 ? [] : keysOf(device)) {
        if (wanted.has(key)) port.same.set(key, [...(port.same.get(key) ?? []), held]);
      }
    }
  }
  return ports;
}

function checkLacp(claim: AllocatedClaim, device: StoredDevice, other: Held | undefined): void {
  if (!isLacp(device) || other === undefined) return;
  const problem = `: device ${device.name} cannot be in a bond of mode 802.3ad, since PF ${device.pfAddress} carries one with ${describe(other)}`;
  const hint = 'use VFs of other PFs, or mode active-backup; or delete the pod with the other bond';
  throw refusal(claim, 'port-taken', problem, { device: device.name, retriable: true, hint });
}

/**
 * Yields each problem between a device and another device of its port, with that other device.
 * @param counts returns whether the device is compared with another one
 */
function* problemsOf(
  device: StoredDevice,
  port: SharedPort,
  counts: (held: Held) => boolean,
): Generator<[string, Held]> {
  const where = `PF ${device.pfAddress}`;
  const mixed = (isLacp(device) ? port.others : port.lacp).find(counts);
  if (mixed !== undefined)
    yield [`a bond of mode 802.3ad cannot share ${where}: the switch may send to another port the frames`, mixed];
  for (const key of keysOf(device)) {
    const held = port.same.get(key)?.find(counts);
    const [, kind, value] = key.split(' ');
    if (held !== undefined)
      yield [
        kind === 'MAC' ? `MAC address ${value} on ${where} is also that` : `address ${value} on ${where} is also one`,
        held,
      ];
  }
}

function isLacp({ config }: StoredDevice): boolean {
  return config.bond?.mode === '802.3ad';
}

/** Returns keys such as `100 IP 192.0.2.7` and `100 MAC …`, each with VLAN, kind and address. The prefix length is left out. */
function keysOf({ config: { addresses = [], macAddress, vf } }: StoredDevice): string[] {
  const vlan = vf?.vlan ?? 0;
  const keys = addresses.map((address) => `${vlan} IP ${quickCanonicalAddress(address.split('/')[0] ?? '')}`);
  return macAddress === undefined ? keys : [...keys, `${vlan} MAC ${macAddress.toLowerCase()}`];
}

function describe({ device: { name }, holder: { identity } }: Held): string {
  return `device ${name} of claim ${claimName(identity)}`;
}
