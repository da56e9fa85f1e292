import type { LabelSelector } from '../../driver/api/class-config.ts';
import type { FieldReader } from './field-reader.ts';

/** Returns a selector of nodes by name. Adds a note that the hostname label may differ from the node's name. */
export function selectNodes(fields: FieldReader, field: string, names: readonly string[]): LabelSelector {
  fields.note(
    field,
    'the policy selects nodes by kubernetes.io/hostname, which may differ from the name of the node: compare with kubectl get nodes --label-columns kubernetes.io/hostname',
  );
  return { matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: [...names] }] };
}

/**
 * Splits a PF's name or address from its range of VFs, such as `ens1f0#0-3,5`, in the notation of device plugin and operator.
 */
export function splitRange(text: string): { value: string; vfs: string | undefined } {
  const [value = '', vfs] = text.split('#', 2);
  return { value, vfs };
}

/** Groups values such as `ens1f0#0-3` by their range. Without values, returns one group without a range. */
export function splitByRange(values: readonly string[]): { values: string[]; vfs: string | undefined }[] {
  if (values.length === 0) return [{ values: [], vfs: undefined }];
  const byRange = Map.groupBy(values.map(splitRange), ({ vfs }) => vfs);
  return [...byRange].map(([vfs, all]) => ({ values: all.map(({ value }) => value), vfs }));
}

/** Converts a link type (`eth`, `ether`, `ETH`, `ib`, …) to that of netdra. */
export function toLinkType(fields: FieldReader, name: string): 'ethernet' | 'infiniband' | undefined {
  const types = [...new Set((fields.texts(name) ?? []).map((each) => each.toLowerCase()))];
  const [type, ...others] = types;
  if (type === undefined) return undefined;
  const isOf = (...known: string[]) => others.length === 0 && known.includes(type);
  if (isOf('eth', 'ether', 'ethernet')) return 'ethernet';
  if (isOf('ib', 'infiniband')) return 'infiniband';
  if (types.length === 2) return undefined;
  fields.lose(name, `${types.join(', ')} is neither Ethernet nor InfiniBand`, 'correct the object');
  return undefined;
}
