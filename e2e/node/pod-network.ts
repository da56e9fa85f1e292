import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { errnoCode, NetdraError } from '../../src/lib/errors.ts';

/** The pod network of one containerd: its own bridge, with a subnet of each family. */
export interface PodNetwork {
  /** 0 … 255 */
  number: number;
  /** Name of the network; libcni keeps its cache under it. */
  name: string;
  /** Name of the bridge, at most 15 characters. */
  bridge: string;
  /** e.g. `10.201.7.0/24` */
  ipv4Subnet: string;
  /** e.g. `fd00:c9:7::/64` */
  ipv6Subnet: string;
}

/** @param number 0 … 255; distinguishes the networks of containerds on one node */
export function createPodNetwork(number: number): PodNetwork {
  return {
    number,
    name: `netdra-${number}`,
    bridge: `ndbr${number}`,
    ipv4Subnet: `10.201.${number}.0/24`,
    ipv6Subnet: `fd00:c9:${number.toString(16)}::/64`,
  };
}

/**
 * The CNI configuration list of a pod network: bridge with host-local addresses.
 * @param dataDir folder for host-local's leases
 */
export function formatConflist(network: PodNetwork, dataDir: string): string {
  const conflist = {
    cniVersion: '1.0.0',
    name: network.name,
    plugins: [
      {
        type: 'bridge',
        bridge: network.bridge,
        isGateway: true,
        ipam: {
          type: 'host-local',
          dataDir,
          ranges: [[{ subnet: network.ipv4Subnet }], [{ subnet: network.ipv6Subnet }]],
          routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
        },
      },
    ],
  };
  return `${JSON.stringify(conflist, null, 2)}\n`;
}

/** The CNI configuration list for pods without a default network, as the page for operators shows it. */
export function readNoNetworkConflist(): string {
  const page = readFileSync(new URL('../../docs/no-default-network.md', import.meta.url), 'utf8');
  const [, conflist] = /^```json\n(\{\n {2}"cniVersion".*?\n)```$/ms.exec(page) ?? [];
  if (conflist === undefined)
    throw new NetdraError('no-pod-network', 'docs/no-default-network.md has no CNI configuration list');
  return conflist;
}

/** One folder per number in use: creating it claims the number. Visible only on the caller's node. */
const claimsDir = '/run/netdra/pod-networks';
const maxNetworks = 256;

/**
 * Claims a pod network that no other containerd on this node uses. Release it with `releasePodNetwork`.
 * @throws NetdraError `no-pod-network`
 */
export function claimPodNetwork(): PodNetwork {
  mkdirSync(claimsDir, { recursive: true });
  for (let number = 0; number < maxNetworks; number++) {
    try {
      mkdirSync(join(claimsDir, String(number)));
      return createPodNetwork(number);
    } catch (error) {
      if (errnoCode(error) !== 'EEXIST') throw error;
    }
  }
  throw new NetdraError('no-pod-network', `all ${maxNetworks} pod networks of this node are taken`, {
    path: claimsDir,
  });
}

export function releasePodNetwork({ number }: PodNetwork): void {
  rmSync(join(claimsDir, String(number)), { recursive: true, force: true });
}
