import type { SimClaim } from './api-server.ts';
import type { SimVf } from './hardware.ts';
import type { Namespace, SimLink } from './links.ts';
import { type Plan, reconcileMsOf } from './plan.ts';
import type { Tape } from './tape.ts';
import { changeSettings, defaultVfSettings } from './vf-settings.ts';
import type { Node } from './world.ts';

/** VFs in pods lose what their PF has set for them, or what their interfaces were given, and stay where they are. */
export interface SettingsLoss {
  kind: 'settings lost';
  atMs: number;
  /**
   * `reset`: all of them, as in a reset of the card; `tool`: another program writes to each of them; `pod`: a process in the pod removes
   * routes of its interface, and lets the network configure it.
   */
  by: 'reset' | 'tool' | 'pod';
}

/** What claims ask of the PF. */
export type PfProperties = Partial<Pick<SimVf['settings'], 'trust' | 'spoofCheck' | 'linkState'>> & { vlan?: number };

interface WantedSettings {
  macAddress?: string;
  vf?: PfProperties;
  routes?: { destination: string }[];
  neighbors?: object[];
  allMulticast?: boolean;
  ethtool?: { rings: { rx: number } };
  slaac?: object;
  vrf?: object;
}

const acceptRa = 'net.ipv6.conf.IFNAME.accept_ra';

/** From a generator of its own: schedules without it do not change with it. Mostly for claims that have something to lose. */
export function drawLosses(tape: Tape, { pods }: Pick<Plan, 'pods'>): SettingsLoss[] {
  const inPod: SettingsLoss[] = tape.chance(0.3, 'inside')
    ? [{ kind: 'settings lost', atMs: 2_000 + tape.below(20_000, 'inside'), by: 'pod' }]
    : [];
  const hasSettings = pods.some(({ claims }) => claims.some(({ config }) => 'vf' in config));
  if (!tape.chance(hasSettings ? 0.3 : 0.03, 'kept')) return inPod;
  const atMs = 2_000 + tape.below(20_000, 'kept');
  return [{ kind: 'settings lost', atMs, by: tape.chance(0.5, 'kept') ? 'reset' : 'tool' }, ...inPod];
}

/** What PFs have set for VFs in pods is as claims ask, some time after it was lost; what a pod has changed is reported. */
export class KeptSettings {
  readonly #node: Node;
  readonly #onViolation: (rule: string, message: string) => void;
  /** Time in which an undisturbed driver sets it again: a round of reconciliation, and what that does. */
  readonly #keepMs: number;
  /** By PCI address: the last loss, and the claim that had the VF. */
  readonly #losses = new Map<string, { atMs: number; claim: SimClaim }>();
  /** In which a process has changed its interfaces. */
  readonly #changedIn = new WeakSet<Namespace>();

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
      if (by === 'pod') {
        this.#changeInPod(vf, claim);
        continue;
      }
      if (!this.#isKnown(vf)) continue;
      this.#losses.set(vf.pciAddress, { atMs: simulator.nowMs, claim });
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

  /** Whether the PF has listed the VF for its claim: otherwise the driver does not know what to restore. */
  #isKnown({ pciAddress }: SimVf): boolean {
    const devices = this.#node.registered()?.store.holderOf(pciAddress)?.devices ?? [];
    const before = devices.find((device) => device.pciAddress === pciAddress)?.before;
    return before === undefined || before.vf.spoofCheck !== undefined;
  }

  /**
   * Whether the VF may still lack what it has lost since its claim has it: the driver had no time yet to set it again, or leaves it
   * to the component that attaches the VF, which may have set it (decision 46).
   */
  isExcused(vf: SimVf): boolean {
    const { apiServer, hardware, simulator } = this.#node;
    const lost = this.#losses.get(vf.pciAddress);
    if (lost === undefined) return false;
    const claim = apiServer.claims.get(lost.claim.name);
    if (claim?.uid !== lost.claim.uid || !hardware.allocatedTo(claim).includes(vf)) return false;
    if (!isKept(claim)) return true;
    return simulator.nowMs - lost.atMs <= this.#keepMs || !this.#node.isUndisturbedFor(this.#keepMs);
  }

  /** Whether a process in the pod has changed the interface, which stays so. */
  isChangedByPod({ used: { namespace } }: SimLink): boolean {
    return this.#changedIn.has(namespace);
  }

  #changeInPod({ link, name }: SimVf, { plan: { attach, config } }: SimClaim): void {
    const { simulator, runtime } = this.#node;
    // One that the pod has moved to a namespace of its own has left the pod: the driver does not see it.
    const isInSandbox = [...runtime.sandboxes.values()].some(({ network }) => network === link?.namespace);
    if (link === undefined || !isInSandbox || attach !== 'netlink') return;
    const { namespace, used } = link;
    this.#changedIn.add(namespace);
    used.routes = [];
    used.neighbors.clear();
    if (used.master?.kind === 'vrf') used.master = undefined;
    used.flags = used.flags.filter((flag) => flag !== 'allMulticast');
    // A claim that waits for routers has this value.
    if (!('slaac' in config)) used.sysctls.set(acceptRa, '2');
    link.rings.rx = 64;
    const sinceMs = simulator.nowMs;
    simulator.trace('pod', `changes the interface of ${name}`);
    simulator.schedule(this.#keepMs + 1, undefined, 'look at reports', () => {
      if (link.namespace === namespace) this.#checkReport(name, link, sinceMs);
    });
  }

  #checkReport(name: string, link: SimLink, sinceMs: number): void {
    const { used, rings } = link;
    const vf = this.#node.hardware.vfs.find((each) => each.name === name);
    const claim = vf && this.#holder(vf);
    if (claim === undefined || this.#isDisturbed()) return;
    const { routes = [], neighbors = [], allMulticast, ethtool, slaac, vrf } = claim.plan.config as WantedSettings;
    const isMissing = ({ destination }: { destination: string }) =>
      used.routes.every((each) => each.destination !== destination);
    const changed = [
      ...(routes.some(isMissing) ? ['routes'] : []),
      ...(neighbors.length > used.neighbors.size ? ['neighbors'] : []),
      ...(allMulticast && !used.flags.includes('allMulticast') ? ['allMulticast'] : []),
      ...(vrf !== undefined && link.vrf === undefined ? ['vrf'] : []),
      ...(slaac === undefined && used.sysctls.get(acceptRa) === '2' ? ['sysctls'] : []),
      ...(ethtool !== undefined && rings.rx !== ethtool.rings.rx ? ['ethtool'] : []),
    ];
    const shown = this.#node.apiServer.statusOf(claim).find(({ device }) => device === name)?.conditions ?? [];
    const { message = '' } = shown.find(({ type, status }) => type === 'Configured' && status === 'False') ?? {};
    const isReported = this.#node.checks.waits.hasEvent(claim.uid, 'SettingsChanged');
    const silent = changed.filter((setting) => !isReported || !message.includes(`${setting} is `));
    if (silent.length === 0) return;
    const ms = this.#node.simulator.nowMs - sinceMs;
    this.#onViolation(
      'not-told',
      `${name} of ${claim.name} has other ${silent.join(' and ')} for ${ms} ms: ${message}`,
    );
  }

  #isDisturbed(): boolean {
    const { lostRate, lockedRate, cniHangRate } = this.#node.plan;
    return lostRate + lockedRate + cniHangRate > 0 || !this.#node.isUndisturbedFor(this.#keepMs);
  }

  #check(vf: SimVf): void {
    const claim = this.#holder(vf);
    if (claim === undefined || this.isExcused(vf) || this.#isDisturbed()) return;
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

  #wrong(vf: SimVf, claim: SimClaim): string[] {
    if (!isKept(claim)) return [];
    const { macAddress, vf: wanted = {} } = claim.plan.config as WantedSettings;
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

/** Whether the driver sets again what the PF has lost for the VFs of a claim. */
function isKept({ plan: { attach } }: SimClaim): boolean {
  return attach === 'netlink' || attach === 'user-space';
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
