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

/** Time without taints after the API server has dropped them, ms. The API server may be upgraded, so taints are tried again. */
const retryTaintsMs = 3_600_000;

/** Names of all device conditions. */
export const conditionNames = [...linkConditions, 'hung', 'unrestored', 'settings-lost', 'operator-at-work'] as const;
export type ConditionName = (typeof conditionNames)[number];

export interface DeviceConditionsOptions {
  clock: Clock;
  /** Name of the driver, which prefixes its taints. */
  driver: string;
  /** Returns the devices that are prepared for claims now. */
  held: () => HeldDevices;
  /** Returns VFs that are unavailable until they are restored. */
  unrestored: () => readonly UnrestoredVf[];
  /** Returns VFs in pods whose PF has lost settings of class or claim. Default: none. */
  settingsLost?: () => readonly { pciAddress: string; message: string }[];
  /** Returns the functions that the SR-IOV network operator is about to change. Default: none. */
  operatorWork?: () => OperatorWork | undefined;
}

/** Sources of conditions, and the policy for their effects. */
export interface ConditionSource {
  /** Returns the writes from which the kernel has not returned. */
  hung: () => readonly HungWrite[];
  /** Returns the conditions of PCI functions that are in force. */
  active: () => readonly ActiveCondition[];
  policy: () => InventoryPolicy;
}

/** A condition of a device. */
export interface DeviceCondition {
  name: ConditionName;
  effect: DeviceTaint['effect'];
  /** Time at which the condition began: Unix time, ms; absent if unknown. */
  sinceMs?: number;
  /** Description of the fault and its remedy. */
  message: string;
}

/** A condition of a card or a single VF, with texts for operators. */
export interface CardCondition {
  name: ConditionName;
  /** Card or representor of a VF, such as `PF ens1f0 (0000:3b:00.0)`. */
  subject: string;
  /** Description of the fault, its consequence for new claims, and its remedy. */
  message: string;
}

/** A device, and the PF whose conditions the device shares. */
export type ConditionedDevice = { pciAddress: string; pfAddress?: string };

/**
 * Decides on the effects of a device's faults: a taint (or no offer, if the API server stores no taints), and whether the
 * device can be prepared. No other code decides this. Decision: docs/decisions/0035-devices-that-say-they-are-broken.md
 */
export class DeviceConditions {
  readonly #options: DeviceConditionsOptions;
  readonly #source: ConditionSource;
  /** Time before which no taints are written: monotonic clock, ms. */
  #noTaintsUntilMs = Number.NEGATIVE_INFINITY;

  constructor(options: DeviceConditionsOptions, source: ConditionSource) {
    this.#options = options;
    this.#source = source;
  }

  get hung(): readonly HungWrite[] {
    return this.#source.hung();
  }

  /** Whether devices with a fault get a taint. Otherwise they are withdrawn, since the API server does not store taints. */
  get keepsTaints(): boolean {
    return this.#options.clock.nowMs() >= this.#noTaintsUntilMs;
  }

  isHung(pciAddress: string): boolean {
    return this.hung.some(({ device }) => device === pciAddress);
  }

  /** Withdraws unclaimed devices that would have a taint, for an hour, since the API server does not store taints. */
  dropTaints(): void {
    this.#noTaintsUntilMs = this.#options.clock.nowMs() + retryTaintsMs;
  }

  /** Calls {@link dropTaints} if an error shows that the API server drops taints. @returns whether it does */
  learn(error: Error): boolean {
    if (!dropsTaints(error)) return false;
    this.dropTaints();
    return true;
  }

  /**
   * Returns the conditions of a device. A VF that is unrestored and hung is only reported as hung: it can be restored only
   * after the kernel has returned.
   */
  of({ pciAddress, pfAddress }: ConditionedDevice): DeviceCondition[] {
    const hung = this.hung.find(({ device }) => device === pciAddress);
    const unrestored = this.#options.unrestored().find(({ device }) => device.pciAddress === pciAddress);
    const lost = this.#lost().find((each) => each.pciAddress === pciAddress);
    const active = this.#source.active().filter((each) => [pciAddress, pfAddress].includes(each.pciAddress));
    // A condition that both the PF and the VF's representor have, such as no carrier, counts once.
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

  /** Returns the conditions of PCI functions for operators. A condition of a PF can affect many devices. */
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

  /** Counts devices by condition. @param which `withheld`: only conditions that keep new claims from getting the device */
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

  /** Returns the reasons why devices are withdrawn, by PCI address. Devices without an entry are offered. */
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

  /** Returns the taints of a device. Conditions with effect `None` have no taint: not every API server knows that effect. */
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

  /** Checks that the kernel is not stuck in a write to the device. @throws SriovError `device-hangs` if it is */
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

  /** Returns a text that changes when devices must be withdrawn or offered again without a change of the node. */
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

/** Returns the PCI addresses of PFs that have lost their LACP partner, if the policy passes the loss on to VFs. */
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

/** Describes a condition: `PF ens1f0 (0000:3b:00.0) has no carrier: …` */
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
