import { defined } from '../../lib/defined.ts';
import { isRepresentor } from '../netlink/index.ts';
import { SriovError } from '../sriov/errors.ts';
import { formatDeviceName } from '../sriov/pci-address.ts';
import type { PciFunction, Pf, Vf } from '../sriov/sysfs.ts';
import type { VfActivation } from '../sriov/vf-activation.ts';
import { bandwidthOf } from './bandwidth.ts';
import { linkIdentity, type VfDevice } from './device.ts';
import { type DevicePlugins, type GivenOut, judgeOwner } from './device-plugins.ts';
import { allowedUses, type ExclusionVerdict, judgeNic, judgePlace, judgeVf } from './exclusion.ts';
import { HostNetwork, type Usage } from './host-network.ts';
import {
  coversVf,
  type InventoryPolicy,
  type NicRule,
  type PfRule,
  rulesForNic,
  rulesForPf,
} from './inventory-policy.ts';
import { addProblem, emptyReport, type InventoryReport, isGone } from './inventory-report.ts';
import { type ConditionReading, readConditions, VfsInPods } from './link-conditions.ts';
import { isOfClaim, type RatesRefusal, RefusedRates } from './refused-rates.ts';
import { SteadyFacts } from './steady-facts.ts';
import {
  type HeldDevices,
  ofPf,
  type Remembered,
  type Seen,
  Survey,
  type SurveyedNode,
  withoutVfs,
  withoutView,
} from './survey.ts';

export interface InventoryOptions extends SurveyedNode {
  /** Returns the policy in force. It is called whenever the policy is needed, so that each scan follows the newest one. */
  policy: () => InventoryPolicy;
  vfSwitch: Pick<VfActivation, 'ensure'>;
  /** Device plugins of the node; absent if there cannot be any, as for simulated devices. */
  devicePlugins?: DevicePlugins;
  /** Returns the names of other DRA drivers that offer functions, by PCI address; `undefined` if they are unknown. */
  otherDrivers?: () => GivenOut | undefined;
}

/** State of a running scan. */
interface Scan {
  survey: Survey;
  held: HeldDevices;
  report: InventoryReport;
  elsewhere: Set<string>;
  /** Rules that select at least one function. */
  matched: Set<PfRule | NicRule>;
  /** Functions that rules can select, as texts for a warning. */
  selectable: string[];
  /** PFs, each with its VFs. */
  found: { pf: Seen<Pf>; vfs: Vf[] }[];
  /** Whether every function could be read. */
  isComplete: boolean;
  /** Resource names of device plugins, by PCI address; `undefined` if they are unknown. */
  givenOut: GivenOut | undefined;
  /** Names of other DRA drivers that offer functions, by PCI address. */
  otherDrivers: GivenOut;
}

/** A PF, the policy's rules for it, and the node's use of it. */
interface PfInPolicy {
  pf: Seen<Pf>;
  rules: PfRule[];
  usage: Usage | undefined;
}

/**
 * Finds the devices that can be offered. Remembers MAC addresses and ports: while a device is in a pod, the host does not see
 * its interface, but its attributes must not change because of that, or because of a cable.
 */
export class Inventory {
  readonly #options: InventoryOptions;
  #remembered: ReadonlyMap<string, Remembered> = new Map();
  /** VFs that were in another network namespace, or open through vfio, at the last scan, although no claim had them. */
  #elsewhere: ReadonlySet<string> = new Set();
  /** PFs of the last scan with their VFs, as they were before any claim changed them. */
  #found: Scan['found'] = [];
  /** Report of the last scan. */
  #report: InventoryReport = emptyReport();
  readonly #inPods = new VfsInPods();
  readonly #steady = new SteadyFacts();
  readonly #refused = new RefusedRates();

  constructor(options: InventoryOptions) {
    this.#options = options;
  }

  /**
   * Scans the node. An unreadable function does not affect the others.
   * @param held devices that keep their offered state, whatever changes on the node or in the policy
   * @throws SriovError `sysfs-unreadable` if nothing can be read; NetlinkError
   */
  async scan(held: HeldDevices = new Map()): Promise<InventoryReport> {
    const survey = await Survey.begin({ ...this.#options, held, remembered: this.#remembered });
    this.#steady.begin();
    const report = emptyReport();
    const isComplete = survey.functions.problems === undefined;
    const { givenOut, problem } = (await this.#options.devicePlugins?.read()) ?? { givenOut: new Map() };
    const otherDrivers = this.#options.otherDrivers === undefined ? new Map() : this.#options.otherDrivers();
    report.knowsOtherDrivers = otherDrivers !== undefined;
    const scan: Scan = {
      survey,
      held,
      report,
      isComplete,
      givenOut,
      otherDrivers: otherDrivers ?? new Map(),
      elsewhere: new Set(),
      matched: new Set(),
      selectable: [],
      found: [],
    };
    for (const problem of survey.functions.problems ?? []) addProblem(report, problem);
    for (const address of survey.functions.pfs) await collectProblem(scan, () => this.#scanPf(address, scan));
    for (const address of survey.functions.others) await collectProblem(scan, () => this.#scanNic(address, scan));
    this.#remembered = survey.remembered;
    this.#elsewhere = scan.elsewhere;
    this.#found = scan.found;
    if (scan.isComplete) {
      report.warnings = [...warningsOf(this.#policy, scan), ...(problem === undefined ? [] : [problem])];
      report.subjects = new Set([...report.pfs, ...report.devices].map(({ pciAddress }) => pciAddress));
    }
    report.devices.sort((a, b) => (a.pciAddress < b.pciAddress ? -1 : 1));
    this.#report = report;
    report.readings = this.#readingsOf(survey.network, held);
    return report;
  }

  /**
   * Returns whether another policy might offer a VF that the last scan has found, or NICs, which that scan may have skipped.
   */
  offersSome(policy: InventoryPolicy): boolean {
    if (policy.pfs?.length === 0 || (policy.nics ?? []).length > 0) return true;
    return this.#found.some(({ pf, vfs }) => {
      const rules = rulesForPf(policy, pf);
      // A PF without VFs may get some later.
      return rules.length > 0 && (vfs.length === 0 || vfs.some((vf) => rules.some((rule) => coversVf(rule, vf))));
    });
  }

  /**
   * Records that a card has refused the rates of a VF: from the next scan on, VFs of its PF with a guarantee are excluded.
   * This ends when the speed of the port changes, unless the card supports no such rates at all. Nothing is recorded if the
   * port is down, since the card may accept the rates later. @returns the field of the policy that requires the rates;
   * `undefined` if no field does, or if the claim has chosen other rates
   */
  async ratesRefused(refusal: RatesRefusal): Promise<string | undefined> {
    const { pciAddress, because } = refusal;
    const policy = this.#policy;
    const found = this.#found.find(({ vfs }) => vfs.some((each) => each.pciAddress === pciAddress));
    const vf = found?.vfs.find((each) => each.pciAddress === pciAddress);
    const rule = vf && rulesForPf(policy, found!.pf).find((each) => coversVf(each, vf));
    if (rule?.bandwidth === undefined || isOfClaim(rule, refusal)) return undefined;
    const field = this.#fieldOf(rule);
    const { pciAddress: pfAddress, interfaceName } = found!.pf;
    const isDown = this.#report.readings.some(
      (each) => each.isPresent && each.pciAddress === pfAddress && ['no-carrier', 'pf-down'].includes(each.condition),
    );
    if (because === 'temporary' || isDown) return field;
    const port = interfaceName === undefined ? {} : await this.#options.sysfs.port(pfAddress, interfaceName);
    this.#refused.add(policy, { ...found!.pf, ...port }, rule, because);
    return field;
  }

  /**
   * PFs that have refused rates under the present policy. A new Set whenever the next scan will exclude other VFs than
   * before.
   */
  get refusals(): ReadonlySet<string> {
    return this.#refused.of(this.#policy);
  }

  get #policy(): InventoryPolicy {
    return this.#options.policy();
  }

  #fieldOf(rule: PfRule): string {
    const field = `pfs[${this.#policy.pfs?.indexOf(rule)}].bandwidth`;
    return rule.bandwidth?.burst ? `${field}.burst` : field;
  }

  /**
   * Reads the conditions of the functions of the last scan. Reads only links, so it is much quicker than a scan.
   * @throws NetlinkError
   */
  async readConditions(held: HeldDevices): Promise<ConditionReading[]> {
    const { connection, simulated } = this.#options;
    const table = await connection.linkTable();
    const linksOf = (found: readonly { pciAddress: string }[]) =>
      table.candidates(found.map(({ pciAddress }) => linkIdentity({ pciAddress, simulated })));
    const { devices, pfs } = this.#report;
    const [vfs, nics] = [devices.filter(({ kind }) => kind === 'vf'), devices.filter(({ kind }) => kind === 'nic')];
    const ports = linksOf([...pfs, ...nics]);
    // A card can have hundreds of VFs. Their own links only matter if they have representors.
    const all = ports.some(isRepresentor) ? [...ports, ...linksOf(vfs)] : ports;
    return this.#readingsOf(new HostNetwork(all, []), held);
  }

  #readingsOf(network: HostNetwork, held: HeldDevices): ConditionReading[] {
    const { simulated } = this.#options;
    const { devices, pfs } = this.#report;
    return readConditions({
      devices,
      pfs,
      isInPod: this.#inPods.observe(held),
      linksOf(pciAddress) {
        if (!simulated) return network.linksOf(pciAddress, pfs.find((pf) => pf.pciAddress === pciAddress)?.names);
        const link = network.linkOf({ pciAddress, simulated });
        // A simulated PF is a bridge, which has no cable: it has a carrier while it is up.
        return link === undefined ? [] : [link.kind === 'bridge' ? { ...link, carrier: link.up, up: true } : link];
      },
    });
  }

  async #scanPf(address: string, scan: Scan): Promise<void> {
    const { survey, report } = scan;
    const pf = await survey.pf(address);
    const subject = { pf, rules: rulesForPf(this.#policy, pf), usage: survey.usageOf(pf) };
    const numVfs = wantedVfs(subject, scan);
    const { vfs: entries, problem } = await this.#options.vfSwitch.ensure(pf, numVfs);
    if (problem !== undefined) report.problems.push(problem);
    const { pciAddress, totalVfs, names, driver, linkSpeedMbps } = pf;
    const facts = defined({ driver, linkSpeedMbps });
    report.pfs.push({ pciAddress, totalVfs, names, numVfs: entries.length, ...facts });
    for (const rule of subject.rules) scan.matched.add(rule);
    this.#offerNic(pf, entries.length > 0 || numVfs > 0, scan);
    const vfs = await survey.vfs(pf, entries, (each) => {
      // The VFs are known without the PF's list, too.
      if (each.code !== 'vf-state-unknown' && !isGone(each)) scan.isComplete = false;
      addProblem(report, each);
    });
    for (const vf of vfs) this.#offerVf(vf, subject, scan);
    const asOffered = (vf: Seen<Vf>) => (scan.held.get(vf.pciAddress)?.offered ?? vf) as VfDevice;
    scan.found.push({ pf, vfs: vfs.map(asOffered) });
  }

  async #scanNic(address: string, scan: Scan): Promise<void> {
    if (this.#policy.nics === undefined && !scan.held.has(address)) return;
    const nic = await scan.survey.nic(address);
    this.#offerNic(nic, false, scan);
  }

  #offerVf(seen: Seen<Vf>, { pf, rules, usage }: PfInPolicy, scan: Scan): void {
    const { survey, held, report } = scan;
    const vf = withoutView(seen);
    const { pciAddress, pfAddress } = vf;
    const rule = rules.find((each) => coversVf(each, vf));
    const common = this.#common(vf, rule, survey);
    const { linkSpeedMbps } = vf;
    const refusesRates = rule !== undefined && this.#refused.has(this.#policy, pf, rule);
    const bandwidth = bandwidthOf(rule, { linkSpeedMbps, driver: pf.driver, refusesRates });
    const refusal = bandwidth !== undefined && 'reason' in bandwidth ? bandwidth : undefined;
    const field = rule !== undefined && refusal?.reason === 'rates-unsupported' ? { field: this.#fieldOf(rule) } : {};
    const verdict = held.has(pciAddress)
      ? undefined
      : (judgeVf(rule, survey.ownUsageOf(seen), usage) ??
        judgeOwner(pciAddress, scan) ??
        this.#judgePlace(seen, scan) ??
        refusal);
    if (verdict !== undefined)
      report.excluded.push({ pciAddress, pfAddress, ...verdict, ...(verdict === refusal ? field : {}) });
    else {
      const limit = bandwidth === undefined || 'reason' in bandwidth ? {} : { bandwidth };
      const isHeld = held.has(pciAddress);
      if (isHeld) this.#steady.keep(pciAddress);
      const steady = isHeld ? vf : this.#steady.settle(vf);
      const offered: VfDevice = { ...steady, ...common, ...ofPf(pf), ...limit, kind: 'vf' };
      report.devices.push(held.get(pciAddress)?.offered ?? offered);
    }
  }

  /**
   * Excludes an offered VF only if two scans in a row find it in another place: between reading `held` and reading the node,
   * a claim may have taken it, or its namespace may be about to return it.
   */
  #judgePlace(seen: Seen<PciFunction>, { elsewhere }: Scan): ExclusionVerdict | undefined {
    const { pciAddress } = seen;
    const verdict = judgePlace(seen);
    if (verdict !== undefined) elsewhere.add(pciAddress);
    return this.#elsewhere.has(pciAddress) || !this.#remembered.has(pciAddress) ? verdict : undefined;
  }

  #offerNic(seen: Seen<PciFunction>, hasVfs: boolean, scan: Scan): void {
    const { survey, held, report } = scan;
    const { pciAddress, names } = seen;
    const rules = rulesForNic(this.#policy, seen);
    scan.selectable.push(names.length === 0 ? pciAddress : `${names.join('/')} (${pciAddress})`);
    for (const each of rules) scan.matched.add(each);
    const [rule] = rules;
    const isHeld = held.has(pciAddress);
    if (rule === undefined && !isHeld) return;
    const nic = { ...withoutVfs(seen), ...this.#common(seen, rule, survey) };
    const usage = survey.ownUsageOf(seen, rule && allowedUses(rule));
    const verdict = isHeld
      ? undefined
      : (judgeNic(nic, usage, hasVfs) ??
        judgeOwner(pciAddress, scan) ??
        this.#judgePlace({ ...seen, isElsewhere: false }, scan));
    if (verdict !== undefined) report.excluded.push({ pciAddress, ...verdict });
    else report.devices.push(held.get(pciAddress)?.offered ?? { ...nic, kind: 'nic' });
  }

  /** Returns the properties that VFs and NICs have in common, besides those of the survey. */
  #common({ pciAddress }: PciFunction, rule: { resourceName?: string | undefined } | undefined, survey: Survey) {
    const resourceName = rule?.resourceName ?? this.#policy.resourceName;
    return {
      name: formatDeviceName(pciAddress),
      simulated: this.#options.simulated,
      ...survey.rdmaOf(pciAddress),
      ...defined({ resourceName }),
    };
  }
}

/**
 * Returns the number of VFs to enable for a PF that has none. An existing number is not changed, since that would remove all
 * VFs first. Cards that the node uses are left alone, since enabling VFs can interrupt them, and so are cards that a claim
 * has as a whole.
 */
function wantedVfs({ pf, rules, usage }: PfInPolicy, { held }: Scan): number {
  const { numVfs = 0, allowInUse = false } = rules.find((rule) => rule.numVfs !== undefined) ?? {};
  const isInUse = held.has(pf.pciAddress) || (usage !== undefined && !allowInUse);
  return isInUse ? 0 : numVfs;
}

function warningsOf({ pfs = [], nics = [] }: InventoryPolicy, { matched, selectable }: Scan): string[] {
  const has = selectable.length === 0 ? 'no PCI network function that a rule can select' : selectable.join(', ');
  const idle = (list: string, rules: (PfRule | NicRule)[]) =>
    rules.flatMap((rule, index) => {
      if (matched.has(rule)) return [];
      const text = JSON.stringify(rule.select);
      return [`${list}[${index}] of the inventory policy selects nothing: ${text}; this node has ${has}`];
    });
  return [...idle('pfs', pfs), ...idle('nics', nics)];
}

async function collectProblem(scan: Scan, task: () => Promise<void>): Promise<void> {
  try {
    await task();
  } catch (error) {
    if (!(error instanceof SriovError)) throw error;
    scan.isComplete = false;
    addProblem(scan.report, error);
  }
}
