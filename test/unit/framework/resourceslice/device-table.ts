import type { Device } from '../../../../src/framework/resourceslice/index.ts';
import { testDriver } from '../../../doubles/objects.ts';

export const many = <T>(count: number, make: (n: number) => T): T[] => Array.from({ length: count }, (_, n) => make(n));
export const record = <T>(count: number, value: T) => Object.fromEntries(many(count, (n) => [`a${n}`, value]));
export const counters = (count: number) => record(count, { value: '1' });
export const consumes = (...sets: string[]) => sets.map((counterSet) => ({ counterSet, counters: counters(1) }));

/** The counter sets that `fullDevice` and the devices of the table draw from. */
export const sharedCounters = many(20, (n) => ({ name: `pf${n}`, counters: counters(32) }));

/** All that is just within the limits. */
export const fullDevice: Device = {
  name: `a${'-b'.repeat(31)}`,
  attributes: {
    ...record(28, { string: 'x'.repeat(64) }),
    ['y'.repeat(32)]: { ints: many(18, (n) => n) },
    [`${'z'.repeat(59)}.com/_`]: { version: '1.0.0-rc.1+build.5' },
    low: { int: Number.MIN_SAFE_INTEGER },
  },
  capacity: { bandwidth: { value: '100G' } },
  taints: many(16, (n) => ({ key: `netdra.dev/taint-${n}`, value: 'a_b.C', effect: 'NoSchedule' as const })),
  consumesCounters: consumes('pf0', 'pf1'),
  bindingConditions: many(4, (n) => `c${n}`),
  bindingFailureConditions: many(4, (n) => `f${n}`),
};

/** Devices that are refused: what is wrong, a device with it, and part of what is said about it. */
export const badDevices: [what: string, device: Partial<Device>, message: string][] = [
  ['a name', { name: 'VF_0' }, 'device VF_0: name "VF_0" must be a DNS label'],
  [
    'an attribute that is too long',
    { attributes: { vendor: { string: 'é'.repeat(33) } } },
    'device vf: attributes[vendor].string "éé',
  ],
  [
    'an attribute without a value',
    { attributes: { a: {} } },
    'device vf: attributes[a] must have exactly one of int, ',
  ],
  [
    'an attribute with two values',
    { attributes: { a: { int: 1, bool: true } } },
    'device vf: attributes[a] must have exactly one',
  ],
  ['an empty list', { attributes: { a: { ints: [] } } }, 'device vf: attributes[a].ints must have at least one value'],
  ['a fraction', { attributes: { a: { int: 1.5 } } }, 'device vf: attributes[a].int 1.5 must be an integer'],
  ['a number beyond 2^53', { attributes: { a: { ints: [2 ** 53] } } }, 'attributes[a].ints 9007199254740992 must be'],
  ['a version', { attributes: { a: { version: '1.2' } } }, '"1.2" must be a semantic version'],
  ['an attribute name', { attributes: { 'my-mtu': { int: 1 } } }, 'attributes[my-mtu] must be named by letters'],
  ['two slashes', { attributes: { 'a.example/b/mtu': { int: 1 } } }, 'has more than one "/" in its name'],
  [
    'a long attribute name',
    { attributes: { ['x'.repeat(33)]: { int: 1 } } },
    'must be named by letters, digits and "_", at most 32',
  ],
  [
    'a long domain',
    { attributes: { [`${'x'.repeat(60)}.com/mtu`]: { int: 1 } } },
    'must have a DNS subdomain of at most 63 characters',
  ],
  [
    "the driver's own domain",
    { attributes: { [`${testDriver}/mtu`]: { int: 1 } } },
    `attributes[${testDriver}/mtu] must be named "mtu": names of the driver itself have no domain`,
  ],
  [
    'too many attributes and capacities',
    { attributes: record(20, { int: 1 }), capacity: record(13, { value: '1' }) },
    'attributes and capacity together has 33 entries, at most 32 are allowed',
  ],
  [
    'too many values',
    { attributes: { a: { ints: many(40, (n) => n) }, b: { ints: many(9, (n) => n) } } },
    'attributes has 49 values, at most 48 are allowed',
  ],
  [
    'a capacity',
    { capacity: { bandwidth: { value: '10 Gbit' } } },
    'capacity[bandwidth].value "10 Gbit" is not a quantity',
  ],
  ['a taint key', { taints: [{ key: 'a b', effect: 'None' }] }, 'taints[0].key "a b" must be a label key'],
  ['a taint effect', { taints: [{ key: 'a', effect: 'Evict' as 'None' }] }, 'taints[0].effect "Evict" must be None or'],
  [
    'a taint value',
    { taints: [{ key: 'a', value: '-', effect: 'None' }] },
    'taints[0].value "-" must be a label value',
  ],
  [
    'a taint time',
    { taints: [{ key: 'a', effect: 'None', timeAdded: 'soon' }] },
    'taints[0].timeAdded "soon" must be a time',
  ],
  [
    'a taint added in a year',
    { taints: [{ key: 'a', effect: 'None', timeAdded: '2026' }] },
    'taints[0].timeAdded "2026" must be a time as in RFC 3339',
  ],
  [
    'an empty time of a taint',
    { taints: [{ key: 'a', effect: 'None', timeAdded: '' }] },
    'timeAdded "" must be a time',
  ],
  ['a bigint', { attributes: { a: { int: 5n as never } } }, 'attributes[a].int 5 is a bigint: pass a number'],
  [
    'a version of more than 64 bits',
    { attributes: { a: { version: '1.0.18446744073709551616' } } },
    '"1.0.18446744073709551616" must be a semantic version with numbers of at most 64 bits',
  ],
  [
    'a pre-release of more than 64 bits',
    { attributes: { a: { version: '1.0.0-rc-a.18446744073709551616+1' } } },
    'must be a semantic version with numbers of at most 64 bits',
  ],
  [
    'no counters of a set',
    { consumesCounters: [{ counterSet: 'pf0', counters: {} }] },
    'consumesCounters[pf0].counters must have at least one counter',
  ],
  [
    'a binding condition that is none',
    { bindingConditions: ['not ready'], bindingFailureConditions: ['failed'] },
    'bindingConditions "not ready" must be a label key',
  ],
  [
    'a binding condition twice',
    { bindingConditions: ['ready', 'ready'], bindingFailureConditions: ['failed'] },
    'bindingConditions has a condition twice',
  ],
  [
    'too many taints',
    { taints: many(17, (n) => ({ key: `k${n}`, effect: 'None' as const })) },
    'taints has 17 entries, at most 16 are allowed',
  ],
  [
    'an unknown counter set',
    { consumesCounters: consumes('pf99') },
    'consumesCounters[pf99] is not a counter set of the pool',
  ],
  ['a set that is used twice', { consumesCounters: consumes('pf0', 'pf0') }, 'consumesCounters[pf0] occurs twice'],
  [
    'three sets',
    { consumesCounters: consumes('pf0', 'pf1', 'pf2') },
    'consumesCounters has 3 entries, at most 2 are allowed',
  ],
  [
    'an unknown counter',
    { consumesCounters: [{ counterSet: 'pf0', counters: { vfs: { value: '1' } } }] },
    'consumesCounters[pf0].counters[vfs] is not a counter of that set',
  ],
  [
    'too many binding conditions',
    { bindingConditions: many(5, (n) => `c${n}`), bindingFailureConditions: ['failed'] },
    'bindingConditions has 5 entries, at most 4 are allowed',
  ],
  [
    'binding conditions without those of failure',
    { bindingConditions: ['ready'] },
    'bindingFailureConditions are required with bindingConditions',
  ],
  [
    'binding conditions of failure only',
    { bindingFailureConditions: ['failed'] },
    'bindingConditions are required with bindingFailureConditions',
  ],
];
