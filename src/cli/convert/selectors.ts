import type { LabelSelector } from '../../driver/api/class-config.ts';
import type { FieldReader } from './field-reader.ts';

/** Selects nodes by name, and notes that the hostname label may differ from the node's name. */
export function selectNodes(fields: FieldReader, field: string, names: readonly string[]): LabelSelector {
  fields.note(
    field,
    'the policy selects nodes by kubernetes.io/hostname, which may differ from the name of the node: compare with kubectl get nodes --label-columns kubernetes.io/hostname',
  );
  return { matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values: [...names] }] };
}

/** Splits `ens1f0#0-3,5`, or the address of a PF with a range, as device plugin and operator write them. */
export function splitRange(text: string): { value: string; vfs: string | undefined } {
  const [value = '', vfs] = text.split('#', 2);
  return { value, vfs };
}

/** Groups values with the same range: `ens1f0#0-3`. Without values, returns one entry for all. */
export function splitByRange(values: readonly string[]): { values: string[]; vfs: string | undefined }[] {
  if (values.length === 0) return [{ values: [], vfs: undefined }];
  const byRange = Map.groupBy(values.map(splitRange), ({ vfs }) => vfs);
  return [...byRange].map(([vfs, all]) => ({ values: all.map(({ value }) => value), vfs }));
}

/** Converts `eth`, `ether`, `ETH`, `ib`, … to our link type. */
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
