import type { SchemaFault } from '../driver/api/schema-faults.ts';

/** Kinds that `netdra validate` checks, by API group. */
const checked: Record<string, readonly string[]> = {
  'resource.k8s.io': ['DeviceClass', 'ResourceClaim', 'ResourceClaimTemplate'],
  'netdra.dev': ['InventoryPolicy', 'NetworkDevicePolicy', 'VFConfig'],
};

/** Length of the longest text that is compared with the right spelling, in characters. */
const longest = 64;

/** Returns faults of an unchecked object that show a mistake: its `apiVersion` or `kind` is misspelled or missing. */
export function slipsIn({ apiVersion, kind }: Record<string, unknown>): SchemaFault[] {
  if (typeof apiVersion !== 'string' || typeof kind !== 'string') {
    return [{ field: 'document', message: 'is not checked: it has no apiVersion and kind', path: [] }];
  }
  const [group = ''] = apiVersion.split('/');
  for (const [ours, kinds] of Object.entries(checked)) {
    const meant: string | undefined = kinds.find((each) => isNear(kind, each));
    if (group !== ours && (isNear(group, ours) || (meant === kind && group !== 'metadata.resource.k8s.io'))) {
      return [
        { field: 'apiVersion', message: `${JSON.stringify(apiVersion)}: is ${ours} meant?`, path: ['apiVersion'] },
      ];
    }
    if (meant !== undefined && meant !== kind) {
      return [{ field: 'kind', message: `${JSON.stringify(kind)}: is ${meant} meant?`, path: ['kind'] }];
    }
  }
  return [];
}

/** Returns whether two texts differ in at most two characters. */
export function isNear(text: string, wanted: string): boolean {
  if (text.length > longest) return false;
  let row = Array.from({ length: wanted.length + 1 }, (_, index) => index);
  for (const [above, character] of [...text.toLowerCase()].entries()) {
    const next = [above + 1];
    for (const [index, other] of [...wanted.toLowerCase()].entries()) {
      const replaced = (row[index] ?? 0) + Number(character !== other);
      next.push(Math.min(replaced, (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1));
    }
    row = next;
  }
  return (row.at(-1) ?? longest) <= 2;
}
