import { isIPv6 } from 'node:net';
import { isAbsolute } from 'node:path';
import { defined } from '../lib/defined.ts';
import { NetdraError } from '../lib/errors.ts';

// The parsers of this file throw an Error that says which values are allowed.

/** Number and layout of the VFs to simulate. */
export interface Simulation {
  pfs: number;
  vfsPerPf: number;
  /** NUMA node of each PF; the last one applies to all further PFs. Absent: the PFs report no NUMA node. */
  numaNodes?: number[];
}

/** Parses seconds, such as `60` or `0.5`, into milliseconds. */
export function parseSeconds(text: string): number {
  const ms = Math.round(Number(text) * 1_000);
  if (text.trim() !== '' && ms >= 100 && ms <= 86_400_000) return ms;
  throw new Error('give seconds, from 0.1 to 86400');
}

/** Parses `8` (one PF with 8 VFs), `2x4` (two PFs with 4 each), or `2x4@0:1` (on the NUMA nodes 0 and 1). */
export function parseSimulation(text: string): Simulation {
  const [, pfs, vfs, nodes] = /^(?:(\d+)x)?(\d+)(?:@(\d{1,3}(?::\d{1,3})*))?$/.exec(text) ?? [];
  const numaNodes = nodes?.split(':').map(Number);
  const simulation = { pfs: Number(pfs ?? 1), vfsPerPf: Number(vfs), ...defined({ numaNodes }) };
  const valid = simulation.pfs >= 1 && simulation.pfs <= 8 && simulation.vfsPerPf >= 1 && simulation.vfsPerPf <= 128;
  if (!valid) {
    const form = 'VFS or PFSxVFS, with 1 to 8 PFs and 1 to 128 VFs for each, such as 8 or 2x4';
    throw new Error(`give ${form}, optionally with the NUMA nodes of the PFs, as in 2x4@0:1`);
  }
  return simulation;
}

/** Parses an absolute path. A relative path would mean something else to other processes that get it. */
export function parseAbsolutePath(text: string): string {
  if (isAbsolute(text)) return text;
  throw new Error('an absolute path is needed');
}

/** Parses comma-separated names, or `*` for all names; the text may be empty. */
export function parseList(text: string): string[] {
  return [...new Set(text.split(',').map((name) => name.trim()))].filter((name) => name !== '');
}

/** Parses comma-separated names of runtime handlers, in which `*` stands for any characters; the text may be empty. */
export function parseHandlers(text: string): string[] {
  const names = parseList(text);
  // Source: RuntimeClass `handler`, a DNS label.
  if (names.every((name) => /^[a-z0-9*]([-a-z0-9*]*[a-z0-9*])?$/.test(name))) return names;
  throw new Error('give names of runtime handlers, lower-case, with * for any characters, such as kata,kata-*');
}

/** Returns a parser of comma-separated names. Only the known names are accepted. */
export function namesAmong<Name extends string>(known: readonly Name[], { mayBeEmpty = false } = {}) {
  return (text: string): Name[] => {
    if (mayBeEmpty && text.trim() === '') return [];
    const names = [...new Set(text.split(',').map((name) => name.trim()))];
    const unknown = names.filter((name) => !known.some((each) => each === name));
    if (unknown.length > 0) throw new Error(`unknown: ${unknown.join(', ')}; known are ${known.join(', ')}`);
    return names as Name[];
  };
}

export function parseBoolean(text: string): boolean {
  if (text === 'true' || text === '1') return true;
  if (text === 'false' || text === '0') return false;
  throw new Error('true or false is needed');
}

/** Parses the name of the SR-IOV network operator's namespace, a DNS label. */
export function parseNamespace(text: string): string {
  // Most other flags of features are switches.
  if (text === 'true' || text === 'false') throw new Error("takes the operator's namespace, not true or false");
  if (/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(text)) return text;
  throw new Error('the name of a namespace is needed, such as sriov-network-operator');
}

/**
 * Parses a driver name: a lower-case DNS subdomain of at most 63 characters. Source: resource.k8s.io/v1
 * `DriverNameMaxLength`.
 */
export function parseDriverName(text: string): string {
  const label = '[a-z0-9]([-a-z0-9]*[a-z0-9])?';
  if (text.length <= 63 && new RegExp(`^${label}(\\.${label})*$`).test(text)) return text;
  throw new Error('a lower-case DNS name of at most 63 characters is needed, such as sriov.netdra.dev');
}

/**
 * Parses `HOST:PORT`, `[IPV6]:PORT` or `:PORT`.
 * @throws NetdraError `address-invalid`
 */
export function parseAddress(address: string): { host?: string; port: number } {
  const [, bracketed, plain, digits] = /^(?:\[([^[\]]+)\]|([^:[\]]*)):(\d{1,5})$/.exec(address) ?? [];
  const port = Number(digits);
  if (digits === undefined || port > 65_535 || (bracketed !== undefined && !isIPv6(bracketed))) {
    throw new NetdraError('address-invalid', `${JSON.stringify(address)} is not an address to listen on`, {
      hint: 'give HOST:PORT or :PORT, such as 127.0.0.1:9797, or [fd00::10]:9797 for IPv6',
    });
  }
  const host = bracketed ?? plain;
  return host ? { host, port } : { port };
}
