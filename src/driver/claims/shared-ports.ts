import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { claimName } from '../../framework/metadata/index.ts';
import { canonicalCidr } from '../../node/netlink/index.ts';
import { refusal, type StoredClaim, type StoredDevice } from '../model/index.ts';

type Holder = Pick<StoredClaim, 'identity'> & { devices: readonly StoredDevice[] };

/**
 * Compares a claim with the other claims of the node that have VFs of the same ports.
 * @param claims those that are in the store
 * @returns what two claims should not have, but may: for users, one line each. Refusing it would keep the new pod of a rolling update
 * from starting while the old one has its claim, and pods may share an address on purpose.
 * @throws DriverError `port-taken` for a second bond in mode 802.3ad over a port: the switch would see two LACP systems on one link, and
 * may block the network of the pod that has the first bond
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
  const found = devices.flatMap((device) =>
    [own, ...holders].flatMap((holder) =>
      holder.devices.flatMap((other) => {
        if (other.pciAddress === device.pciAddress || !isSamePort(device, other)) return [];
        checkLacp(claim, device, other, holder);
        // Members of one bond share its addresses.
        if (holder === own && device.config.bond?.name === other.config.bond?.name && device.config.bond) return [];
        return problemsOf(device, other).map((problem) => `${problem} of ${describe(other, holder)}`);
      }),
    ),
  );
  return [...new Set(found)];
}

function isSamePort(a: StoredDevice, b: StoredDevice): boolean {
  return a.pfAddress !== undefined && a.pfAddress === b.pfAddress;
}

function checkLacp(claim: AllocatedClaim, device: StoredDevice, other: StoredDevice, holder: Holder): void {
  if (!isLacp(device) || !isLacp(other)) return;
  const problem = `: device ${device.name} cannot be in a bond of mode 802.3ad, since PF ${device.pfAddress} carries one with ${describe(other, holder)}`;
  const hint = 'use VFs of other PFs, or mode active-backup; or delete the pod with the other bond';
  throw refusal(claim, 'port-taken', problem, { device: device.name, retriable: true, hint });
}

function problemsOf(device: StoredDevice, other: StoredDevice): string[] {
  const port = `PF ${device.pfAddress}`;
  const problems: string[] = [];
  if (isLacp(device) !== isLacp(other))
    problems.push(
      `a bond of mode 802.3ad does not share ${port}: the switch may send frames to another port, also those`,
    );
  if ((device.config.vf?.vlan ?? 0) !== (other.config.vf?.vlan ?? 0)) return problems;
  for (const address of addressesOf(device).intersection(addressesOf(other)))
    problems.push(`address ${address} on ${port} is also one`);
  const mac = device.config.macAddress?.toLowerCase();
  if (mac !== undefined && mac === other.config.macAddress?.toLowerCase())
    problems.push(`MAC address ${mac} on ${port} is also that`);
  return problems;
}

function isLacp({ config }: StoredDevice): boolean {
  return config.bond?.mode === '802.3ad';
}

/** Without prefix lengths, which do not matter here. */
function addressesOf({ config: { addresses = [] } }: StoredDevice): Set<string> {
  return new Set(addresses.map((address) => canonicalCidr(address).split('/')[0]!));
}

function describe({ name }: StoredDevice, { identity }: Holder): string {
  return `device ${name} of claim ${claimName(identity)}`;
}
