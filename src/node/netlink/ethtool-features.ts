const txChecksums = ['ipv4', 'ip-generic', 'ipv6', 'fcoe-crc', 'sctp'].map((kind) => `tx-checksum-${kind}`);
const tcpSegmentation = ['tcp', 'tcp-ecn', 'tcp-mangleid', 'tcp6'].map((kind) => `tx-${kind}-segmentation`);

/** Names that the program ethtool has for one or several features (`ethtool -k`, `ethtool -K`). Source: ethtool, common.c. */
const programNames: readonly [long: string, short: string, ...features: string[]][] = [
  ['rx-checksumming', 'rx', 'rx-checksum'],
  ['tx-checksumming', 'tx', ...txChecksums],
  ['scatter-gather', 'sg', 'tx-scatter-gather', 'tx-scatter-gather-fraglist'],
  ['tcp-segmentation-offload', 'tso', ...tcpSegmentation],
  ['generic-segmentation-offload', 'gso', 'tx-generic-segmentation'],
  ['generic-receive-offload', 'gro', 'rx-gro'],
  ['large-receive-offload', 'lro', 'rx-lro'],
  ['rx-vlan-offload', 'rxvlan', 'rx-vlan-hw-parse'],
  ['tx-vlan-offload', 'txvlan', 'tx-vlan-hw-insert'],
  ['ntuple-filters', 'ntuple', 'rx-ntuple-filter'],
  ['receive-hashing', 'rxhash', 'rx-hashing'],
];

/** Returns the kernel's names of the features for which the program ethtool has a name of its own; otherwise an empty list. */
export function kernelFeatures(programName: string): string[] {
  const [, , ...features] = programNames.find((names) => names.slice(0, 2).includes(programName)) ?? [];
  return features;
}
