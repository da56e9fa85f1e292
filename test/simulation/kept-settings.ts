import type { SimClaim } from './api-server.ts';
import type { SimVf } from './hardware.ts';
import { type Plan, reconcileMsOf } from './plan.ts';
import type { Tape } from './tape.ts';
import { changeSettings, defaultVfSettings } from './vf-settings.ts';
import type { Node } from './world.ts';

/** VFs in pods lose what their PF has set for them, and their interfaces stay. */
export interface SettingsLoss {
  kind: 'settings lost';
  atMs: number;
  /** `reset`: all of them, as in a reset of the card; `tool`: another program writes to each of them. */
  by: 'reset' | 'tool';
}

/** What claims ask of the PF. */
export type PfProperties = Partial<Pick<SimVf['settings'], 'trust' | 'spoofCheck' | 'linkState'>> & { vlan?: number };

type WantedSettings = { macAddress?: string; vf?: PfProperties };

/** From a generator of its own: schedules without it do not change with it. Mostly for claims that have something to lose. */
export function drawLosses(tape: Tape, { pods }: Pick<Plan, 'pods'>): SettingsLoss[] {
  const hasSettings = pods.some(({ claims }) => claims.some(({ config }) => 'vf' in config));
  if (!tape.chance(hasSettings ? 0.3 : 0.03, 'kept')) return [];
  const atMs = 2_000 + tape.below(20_000, 'kept');
  return [{ kind: 'settings lost', atMs, by: tape.chance(0.5, 'kept') ? 'reset' : 'tool' }];
}

/** What PFs have set for VFs in pods is as claims ask, some time after it was lost. */
export class KeptSettings {
  readonly #node: Node;
  readonly #onViolation: (rule: string, message: string) => void;
  /** Time in which an undisturbed driver sets it again: a round of reconciliation, and what that does. */
  readonly #keepMs: number;
  readonly #lostAtMs = new Map<string, number>();

  constructor(node: Node, onViolation: (rule: string, message: string) => void) {
    this.#node = node;
    this.#onViolation = onViolation;
    this.#keepMs = reconcileMsOf(node.plan) + 10_000;
  }

  lose({ by }: SettingsLoss): void {
    const { hardware, simulator } = this.#node;
    for (const vf of hardware.vfs) {
      const claim = this.#holder(vf);
      if (claim === undefined) continue;
      this.#lostAtMs.set(vf.pciAddress, simulator.nowMs);
      const { trust, spoofCheck } = vf.settings;
      if (by === 'reset') vf.settings = defaultVfSettings();
      else changeSettings(vf.settings, { trust: !trust, spoofCheck: !spoofCheck });
      // What no claim asks for is the operator's, and stays until the claim ends.
      const { vlan } = (claim.plan.config as WantedSettings).vf ?? {};
      if (vlan !== undefined && by === 'tool') changeSettings(vf.settings, { vlan: { id: 4_000 } });
      if (this.#node.plan.bandwidth !== undefined) changeSettings(vf.settings, { rate: { minMbps: 0, maxMbps: 1 } });
      simulator.trace('card', `${vf.pciAddress} loses its settings by a ${by}`);
      simulator.schedule(this.#keepMs + 1, undefined, 'look at settings', () => this.#check(vf));
    }
  }

  /** Whether the driver had no time yet to set again what the VF has lost. */
  isExcused({ pciAddress }: SimVf): boolean {
    const lostAtMs = this.#lostAtMs.get(pciAddress);
    if (lostAtMs === undefined) return false;
    return this.#node.simulator.nowMs - lostAtMs <= this.#keepMs || !this.#node.isUndisturbedFor(this.#keepMs);
  }

  #check(vf: SimVf): void {
    const claim = this.#holder(vf);
    const { lostRate, lockedRate, cniHangRate } = this.#node.plan;
    if (claim === undefined || this.isExcused(vf) || lostRate + lockedRate + cniHangRate > 0) return;
    const wrong = this.#wrong(vf, claim);
    if (wrong.length === 0 || this.#isReported(claim)) return;
    const ms = this.#keepMs;
    this.#onViolation('not-kept', `${vf.name} of ${claim.name} has ${wrong.join(', ')} ${ms} ms after it was changed`);
  }

  /** The claim that has the VF in a pod, as the driver has stored it. */
  #holder({ pciAddress }: SimVf): SimClaim | undefined {
    const stored = this.#node.registered()?.store.holderOf(pciAddress);
    const device = stored?.devices.find((each) => each.pciAddress === pciAddress);
    const claim = this.#node.apiServer.claims.get(stored?.identity.name ?? '');
    const isInPod = stored?.state === 'prepared' && device?.attachment !== undefined;
    return isInPod && claim?.uid === stored.identity.uid ? claim : undefined;
  }

  #wrong(vf: SimVf, { plan: { attach, config } }: SimClaim): string[] {
    if (attach !== 'netlink' && attach !== 'user-space') return [];
    const { macAddress, vf: wanted = {} } = config as WantedSettings;
    const { settings } = vf;
    const rates = this.#node.checks.guarantees.problemOf(vf);
    const isTrusted = wanted.trust ?? settings.trust;
    return [
      ...settingsUnlike(vf, wanted),
      ...(macAddress === undefined || isTrusted || settings.hardwareAddress === macAddress
        ? []
        : [`MAC ${settings.hardwareAddress}`]),
      ...(rates === undefined ? [] : [rates]),
    ];
  }

  /** By a metric, a condition of the device, and an event. */
  #isReported(claim: SimClaim): boolean {
    const isCounted = this.#node.registered()?.drifts.some((each) => each.endsWith(' lost')) === true;
    const conditions = this.#node.apiServer.statusOf(claim).flatMap((device) => device.conditions ?? []);
    const isShown = conditions.some(({ type, status: is }) => type === 'Configured' && is === 'False');
    return isCounted && isShown && this.#node.checks.waits.hasEvent(claim.uid, 'SettingsLost');
  }
}

/** What the PF has set otherwise than a claim asks. */
export function settingsUnlike({ settings }: SimVf, { vlan, ...properties }: PfProperties): string[] {
  return [
    ...(vlan === undefined || settings.vlan?.id === vlan ? [] : [`VLAN ${settings.vlan?.id}`]),
    ...Object.entries(properties).flatMap(([key, value]) => {
      const set = settings[key as keyof typeof properties];
      return set === value ? [] : [`${key} ${set}`];
    }),
  ];
}
