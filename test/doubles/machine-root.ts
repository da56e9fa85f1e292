import { readFileSync } from 'node:fs';

/**
 * Whether this is the machine's root, and not root of a user namespace, for whom other users do not exist and the kernel refuses
 * BPF, TUN/TAP and cgroups. Source: user_namespaces(7), uid_map.
 */
export const isMachineRoot =
  process.getuid?.() === 0 && /^\s*0\s+0\s+4294967295\s*$/.test(readFileSync('/proc/self/uid_map', 'utf8'));
