import { parseRange } from '../../node/inventory/index.ts';
import type { PfRule } from './estate.ts';

type Selector = Record<string, string | string[] | undefined>;

/** Returns whether a VF could match both rules. */
export function mayOverlap(one: PfRule, other: PfRule): boolean {
  const selectors = [one, other].map(({ select, vfs, vfDriver }) => ({ ...select, vfs, vfDriver }));
  const [a = {}, b = {}] = selectors as Record<string, string | string[] | undefined>[];
  return Object.keys(a).every((field) => {
    const [mine, theirs] = [a[field], b[field]];
    if (mine === undefined || theirs === undefined) return true;
    return !new Set([mine].flat()).isDisjointFrom(new Set([theirs].flat()));
  });
}

/** Returns whether every VF that matches the other rule also matches this one, as far as the rules show. */
export function covers(one: PfRule, other: PfRule): boolean {
  const drivers = [one, other].map(({ vfDriver }) => ({ vfDriver }) as Selector) as [Selector, Selector];
  return selectsAll(one.select, other.select) && selectsAll(...drivers) && hasRange(one.vfs, other.vfs);
}

/** Returns whether both rules certainly match the same PF. */
export function haveSamePf({ select: one }: PfRule, { select: other }: PfRule): boolean {
  if (selectsAll(one, other) || selectsAll(other, one)) return true;
  const [a, b]: [Selector, Selector] = [one, other];
  const fields = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...fields].every((field) => !valuesOf(a[field]).isDisjointFrom(valuesOf(b[field])));
}

function selectsAll(one: Selector, other: Selector): boolean {
  return Object.entries(one).every(([field, values]) => {
    return values === undefined || (other[field] !== undefined && valuesOf(other[field]).isSubsetOf(valuesOf(values)));
  });
}

function hasRange(one: string | undefined, other: string | undefined): boolean {
  if (one === undefined) return true;
  if (other === undefined) return false;
  const ranges = parseRange(one);
  return parseRange(other).every((each) => ranges.some(({ first, last }) => first <= each.first && each.last <= last));
}

function valuesOf(values: string | string[] | undefined): Set<string> {
  return new Set([values ?? []].flat());
}
