import { type DeviceTaint, dropsTaints } from '../../framework/resourceslice/index.ts';
import type { Clock } from '../../lib/clock.ts';
import {
  type ConditionSubject,
  type HeldDevices,
  type InventoryPolicy,
  type LinkCondition,
  linkConditions,
} from '../../node/inventory/index.ts';
import { type HungWrite, hungWriteHint, SriovError } from '../../node/sriov/index.ts';
import type { UnrestoredVf } from '../model/index.ts';
import type { ActiveCondition } from './condition-history.ts';
import type { OperatorWork } from './sriov-operator.ts';

/** An API server that drops taints may be upgraded to one that stores them. */
const retryTaintsMs = 3_600_000;

/** Everything that can be wrong with a device. */
export const conditionNames = [...linkConditions, 'hung', 'unrestored', 'settings-lost', 'operator-at-work'] as const;
export type ConditionName = (typeof conditionNames)[number];

export interface DeviceConditionsOptions {
  clock: Clock;
  /** Name of the driver, which prefixes its taints. */
  driver: string;
  /** Returns the devices that are prepared for claims now. */
  held: () => HeldDevices;
  /** Returns VFs that no claim gets until they are restored. */
  unrestored: () => readonly UnrestoredVf[];
  /** Returns VFs in pods whose PF does not keep the settings of class and claim. Default: none. */
  settingsLost?: () => readonly { pciAddress: string; message: string }[];
  /** Returns the functions whose VFs the SR-IOV network operator is about to change. Default: none. */
  operatorWork?: () => OperatorWork | undefined;
}

/** Sources of conditions, and the policy for their effects. */
export interface ConditionSource {
  /** Returns writes from which the kernel has not returned. */
  hung: () => readonly HungWrite[];
  /** Returns the conditions of functions in force. */
  active: () => readonly ActiveCondition[];
  policy: () => InventoryPolicy;
}

/** A condition of a device. */
export interface DeviceCondition {
  name: ConditionName;
  effect: DeviceTaint['effect'];
  /** Time of its beginning: Unix time, ms; absent if unknown. */
  sinceMs?: number;
  /** What is wrong, and what to do. */
  message: string;
}

/** A condition of a card or a single VF, for people. */
export interface CardCondition {
  name: ConditionName;
  /** Card or VF: `PF ens1f0 (0000:3b:00.0)` */
  subject: string;
  /** What is wrong, what follows for new claims, and what to do. */
  message: string;
}

/** A device, and the PF that it shares conditions with. */
export type ConditionedDevice = { pciAddress: string; pfAddress?: string };

/**
 * Decides what a fault of a device leads to: a taint (or, if the API server stores no taints, no offer), and whether the
 * device can be prepared. No other code decides this. Decision: docs/decisions/0035-devices-that-say-they-are-broken.md
 */
export class DeviceConditions {
  readonly #options: DeviceConditionsOptions;
  readonly #source: ConditionSource;
  /** Time until which taints are not tried. */
  #noTaintsUntilMs = Number.NEGATIVE_INFINITY;

  constructor(options: DeviceConditionsOptions, source: ConditionSource) {
    this.#options = options;
    this.#source = source;
  }

  get hung(): readonly HungWrite[] {
    return this.#source.hung();
  }

  /** Whether devices in such a condition get a taint; otherwise they are withdrawn. */
  get keepsTaints(): boolean {
    return this.#options.clock.nowMs() >= this.#noTaintsUntilMs;
  }

  isHung(pciAddress: string): boolean {
    return this.hung.some(({ device }) => device === pciAddress);
  }

  /** Withdraws unclaimed devices that would have a taint, for an hour: the API server does not store taints. */
  dropTaints(): void {
    this.#noTaintsUntilMs = this.#options.clock.nowMs() + retryTaintsMs;
  }

  /** @returns whether the error shows that the API server drops taints */
  learn(error: Error): boolean {
    if (!dropsTaints(error)) return false;
    this.dropTaints();
    return true;
  }

  /**
   * Returns the conditions of a device. An unrestored VF that hangs is only reported as hung: what can be restored is known
   * when the kernel returns.
   */
  of({ pciAddress, pfAddress }: ConditionedDevice): DeviceCondition[] {
    const hung = this.hung.find(({ device }) => device === pciAddress);
    const unrestored = this.#options.unrestored().find(({ device }) => device.pciAddress === pciAddress);
    const lost = this.#lost().find((each) => each.pciAddress === pciAddress);
    const active = this.#source.active().filter((each) => [pciAddress, pfAddress].includes(each.pciAddress));
    // A PF and the representor of a VF can both lack a carrier.
    const own = [...new Map(active.map((each) => [each.condition, each])).values()];
    return [
      ...own.map((each): DeviceCondition => {
        const { condition: name, sinceMs } = each;
        return { name, effect: this.effectOf(name), sinceMs, message: describeCondition(each) };
      }),
      ...(hung === undefined
        ? []
        : [{ name: 'hung' as const, effect: this.effectOf('hung'), message: describeHung(hung) }]),
      ...(hung !== undefined || unrestored === undefined
        ? []
        : [{ name: 'unrestored' as const, effect: 'NoSchedule' as const, message: describeUnrestored(unrestored) }]),
      ...(lost === undefined
        ? []
        : [{ name: 'settings-lost' as const, effect: 'NoSchedule' as const, message: lost.message }]),
      ...this.#ofOperator([pciAddress, pfAddress]),
    ];
  }

  /** Returns the conditions of functions of cards, which can affect many devices at once. */
  ofCards(): CardCondition[] {
    return this.#source.active().map((each) => {
      const { condition: name, pciAddress } = each;
      const relayed = pfsWithoutLacpPartner(this.#source.policy(), [each]).has(pciAddress)
        ? ' VFs of claims with link state auto have no link until then.'
        : '';
      const message = `${describeCondition(each)}. ${this.#consequenceOf(name)}${relayed}`;
      return { name, subject: subjectOf(each), message };
    });
  }

  /** Counts these devices in each condition. @param which `withheld`: only conditions that keep them from new claims */
  counts(
    devices: readonly ConditionedDevice[],
    which: 'all' | 'withheld' = 'all',
  ): Partial<Record<ConditionName, number>> {
    const all = devices.flatMap((device) => this.of(device));
    const wanted = all.filter(({ effect }) => which === 'all' || effect !== 'None');
    const byName = Map.groupBy(wanted, ({ name }) => name);
    return Object.fromEntries([...byName].map(([name, found]) => [name, found.length]));
  }

  effectOf(name: ConditionName): DeviceTaint['effect'] {
    const { taints = {} } = this.#source.policy();
    const { noCarrier, pfDown, lacpPartnerLost, missingDriver, hung } = taints;
    const effects: Partial<Record<ConditionName, DeviceTaint['effect'] | undefined>> = {
      'no-carrier': noCarrier,
      'pf-down': pfDown,
      'lacp-partner-lost': lacpPartnerLost,
      'missing-driver': missingDriver,
      hung,
    };
    return effects[name] ?? 'NoSchedule';
  }

  /** Returns why devices are withdrawn, by PCI address; the others are offered. */
  withdrawals(devices: readonly ConditionedDevice[]): Map<string, DeviceCondition> {
    if (this.keepsTaints) return new Map();
    const held = this.#options.held();
    const free = devices.filter(({ pciAddress }) => !held.has(pciAddress));
    return new Map(
      free.flatMap((device): [string, DeviceCondition][] => {
        const reason = this.of(device).find(({ effect }) => effect !== 'None');
        return reason === undefined ? [] : [[device.pciAddress, reason]];
      }),
    );
  }

  /** Returns the taints of a device. The API's own effect `None` is left out: not every API server knows it. */
  taintsOf(device: ConditionedDevice): { taints?: DeviceTaint[] } {
    if (!this.keepsTaints) return {};
    const taints = this.of(device).flatMap(({ name, effect, sinceMs }): DeviceTaint[] => {
      if (effect === 'None') return [];
      return [
        { key: this.#keyOf(name), effect, ...(sinceMs === undefined ? {} : { timeAdded: formatSeconds(sinceMs) }) },
      ];
    });
    return taints.length === 0 ? {} : { taints };
  }

  #keyOf(name: ConditionName): string {
    return `${this.#options.driver}/${name}`;
  }

  #consequenceOf(name: ConditionName): string {
    const effect = this.effectOf(name);
    if (effect === 'None') return 'Its devices stay available to new claims, as the inventory policy says.';
    if (!this.keepsTaints) return 'Its devices are withheld until it recovers.';
    return `Its devices have the taint ${this.#keyOf(name)} with the effect ${effect} until it recovers.`;
  }

  /** @throws SriovError `device-hangs` if the device cannot be prepared for a claim now */
  check(pciAddress: string): void {
    const hung = this.hung.find(({ device }) => device === pciAddress);
    if (hung === undefined) return;
    const { device, path } = hung;
    throw new SriovError('device-hangs', `${device}: the kernel has not returned from an earlier write to ${path}`, {
      device,
      path,
      retriable: true,
      hint: hungWriteHint,
    });
  }

  /** Returns a text that differs when the store and the kernel's writes require other devices to be offered or withdrawn. */
  fingerprint(): string {
    const unrestored = this.#options.unrestored().map(({ device }) => device.pciAddress);
    const { what, functions = [] } = this.#options.operatorWork?.() ?? {};
    return JSON.stringify([unrestored, this.hung.map(({ device }) => device), this.#lost(), what, ...functions]);
  }

  #ofOperator(addresses: readonly (string | undefined)[]): DeviceCondition[] {
    const work = this.#options.operatorWork?.();
    if (work === undefined || !addresses.some((each) => each !== undefined && work.functions.has(each))) return [];
    const why = `the SR-IOV network operator ${work.what}, which may remove its VFs`;
    const todo =
      'wait until the operator has finished; if the operator is gone, delete the SriovNetworkNodeState of this node, or set sriovOperator.enabled=false';
    return [{ name: 'operator-at-work', effect: 'NoSchedule', message: `${why}: ${todo}` }];
  }

  #lost(): readonly { pciAddress: string; message: string }[] {
    return this.#options.settingsLost?.() ?? [];
  }
}

/** Returns PCI addresses of PFs whose lost LACP partner is passed on to VFs, as the policy requests. */
export function pfsWithoutLacpPartner(
  policy: InventoryPolicy | undefined,
  conditions: readonly ActiveCondition[],
): Set<string> {
  const isLost = ({ condition }: ActiveCondition) => condition === 'lacp-partner-lost';
  const lost = policy?.health?.lacpRelay === true ? conditions.filter(isLost) : [];
  return new Set(lost.map(({ pciAddress }) => pciAddress));
}

/** Formats a time as RFC 3339 in whole seconds, as the API server stores it. */
function formatSeconds(unixMs: number): string {
  return new Date(unixMs).toISOString().replace(/\.\d+Z$/, 'Z');
}

const whatIsWrong: Record<LinkCondition, (kind: ConditionSubject['kind']) => string> = {
  'no-carrier': (kind) =>
    kind === 'VF'
      ? 'of a VF has no carrier: the kernel log says what its driver does'
      : 'has no carrier: check its cable and transceiver, and the port of the switch',
  'pf-down': () =>
    'is administratively down, and the VFs of most cards have no link then: set its interface up ("ip link set … up"), or set taints.pfDown of the inventory policy to None where they do not depend on it',
  'lacp-partner-lost': () => 'has lost its LACP partner: check LACP at the port of the switch that it is connected to',
  'missing-driver': () =>
    'has no kernel driver: load it, or bind it again; if its probe fails, the kernel log says why',
};

/** Returns `PF ens1f0 (0000:3b:00.0) has no carrier: …` */
export function describeCondition(condition: ActiveCondition): string {
  return `${subjectOf(condition)} ${whatIsWrong[condition.condition](condition.kind)}`;
}

function subjectOf({ kind, pciAddress, interfaceName }: ConditionSubject): string {
  const name = interfaceName === undefined ? pciAddress : `${interfaceName} (${pciAddress})`;
  return `${kind === 'VF' ? 'representor' : kind} ${name}`;
}

function describeHung({ path }: HungWrite): string {
  return `the kernel does not return from a write to ${path}: ${hungWriteHint}`;
}

function describeUnrestored({ reason }: UnrestoredVf): string {
  return `restoring it after its last claim failed: ${reason}; the driver retries every minute`;
}
