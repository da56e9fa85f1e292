import type { LayoutName } from '../../src/framework/metadata/index.ts';
import {
  drawContest,
  drawEnds,
  drawFaults,
  drawForgottenState,
  drawMoreFault,
  drawOutages,
  drawRefusals,
  drawRestartsAfterBoot,
  drawSilence,
  drawSlowness,
} from './draw-faults.ts';
import {
  drawBond,
  drawCpus,
  drawMoreOfPod,
  drawNames,
  drawPod,
  drawPool,
  drawProperties,
  drawReuse,
  drawSeveral,
  drawSlaac,
  drawVrfs,
} from './draw-pod.ts';
import { drawLosses, type SettingsLoss } from './kept-settings.ts';
import type { Tape } from './tape.ts';

/** How a claim's VF gets into its pod. */
export type Attach = 'netlink' | 'cni' | 'observe' | 'user-space';

export interface ClaimPlan {
  attach: Attach;
  vfs: number;
  /** All VFs in one request, or each in a separate request. */
  isOneRequest: boolean;
  ipam: boolean;
  /** Additional settings of the claim. */
  config: object;
  /** Only observes a VF that another claim may have. */
  adminAccess: boolean;
  /** Its VFs are the members of a bond. */
  isBond?: boolean;
  /** Its CNI plugin fails each time. */
  isBroken?: boolean;
}

export interface PodPlan {
  arrivesAtMs: number;
  claims: ClaimPlan[];
  /** Takes over the first claim of the previous pod, by name. */
  takesOver: boolean;
  /** Uses the first claim of the previous pod beside it, which is possible only if the claim has no VF of its own. */
  shares: boolean;
  /** Uses the host's network. */
  isOnHost: boolean;
  /** Where the running pod moves its VF to, if it does: the host's namespace, or one of its own. */
  vfLeavesTo: 'host' | 'own' | undefined;
  /** Whether it always moves another one, too. */
  leavesTwice?: boolean;
  restartPolicy: 'Always' | 'Never';
  /** Time after its arrival; absent: at the end of the schedule. */
  deletedAfterMs: number | undefined;
  /** Without waiting for the kubelet. */
  isForced: boolean;
  /** Number of changes that the running pod makes to its own interface. */
  mutations: number;
  /** Number of times that its container exits by itself. */
  exits: number;
  /** CPUs that only its container has; none: it shares all of them. */
  cpus: number[];
}

/** About half of the driver's reads of its files, of its store or of sysfs fail. */
export interface ReadFault {
  kind: 'reads fail';
  atMs: number;
  forMs: number;
  of: 'files' | 'store' | 'card';
}

/** A file of the driver that something else has damaged; a CDI spec while the driver is away, which makes it again when it starts. */
export interface Damage {
  kind: 'damage file';
  atMs: number;
  of: 'gate' | 'metadata' | 'CDI spec';
  how: 'empty' | 'torn' | 'newer' | 'removed';
}

/** One of the driver's writes, statements, requests to the kernel, or changes of links fails, after some that do not. */
export interface OneFailure {
  kind: 'one fails';
  atMs: number;
  of: 'disk' | 'store' | 'kernel' | 'links';
  after: number;
}

/** What the policy guarantees each VF, of ports with 10 Gbit/s. */
export interface BandwidthPlan {
  guaranteedMbps: number;
  /** While the policy is another one. */
  otherMbps: number;
  burst: boolean;
  /** Whether the scheduler counts, as it does by default from Kubernetes 1.36 on. */
  isCounted: boolean;
}

/** What happens when the node boots. */
export interface BootPlan {
  /** The power has failed: the claim that was stored last is lost, its files are not. */
  losesLast: boolean;
  /** Number of changes after which the first instance is killed; 0: it is not killed. */
  killAfter: number;
}

/** What an administrator has chosen for an instance of the driver. */
export interface InstanceSettings {
  metadata: boolean;
  gate: 'hook' | 'file';
  layouts: LayoutName[];
}

export type PlainFault =
  | ('kill driver' | 'stall driver' | 'restart runtime' | 'reset card' | 'reboot')
  | ('API server away' | 'disk full' | 'disk error' | 'store error' | 'change policy')
  | ('stall runtime' | 'stall kubelet' | 'card refuses' | 'interfaces late' | 'devices slow');

export type Fault =
  | { kind: PlainFault; atMs: number; forMs: number }
  | ReadFault
  | Damage
  | OneFailure
  | { kind: 'cable out'; atMs: number; forMs: number }
  /** The PF is the port of a bond, whose partner is silent for a time. */
  | { kind: 'partner lost'; atMs: number; forMs: number }
  | { kind: 'clock step'; atMs: number; byMs: number }
  | SettingsLoss
  /** The newest instance stops when it next waits for the lock of a claim, and a sandbox is lost meanwhile. */
  | { kind: 'stall in wait'; atMs: number; forMs: number; lostAfterMs: number }
  | { kind: 'restart kubelet'; atMs: number; forMs: number; isStateLost: boolean }
  | { kind: 'lose sandbox'; atMs: number; forMs: number; isDriverAway: boolean }
  | { kind: 'update driver'; atMs: number; forMs: number; isKilled: boolean };

export type Flavour = 'containerd' | 'cri-o';

/** The events of a schedule; delays, and the points at which processes die, are decided while it runs. */
export interface Plan {
  flavour: Flavour;
  vfs: number;
  /** How often `sriov_numvfs` is written without effect before there are VFs; absent: they are there from the start. */
  writesInVain: number | undefined;
  pods: PodPlan[];
  faults: Fault[];
  /** Number of changes after which each successive instance is killed; 0: it is not killed. */
  killAfter: number[];
  /** Of each successive instance; those that follow have the last ones. */
  settings: [InstanceSettings, ...InstanceSettings[]];
  liveUpdates: boolean;
  /** Share of slow delays: with a large share, more events overlap. */
  slowShare: number;
  /** Share of answers of the kernel that are there at once. */
  instantShare: number;
  renamesLinksThatAreUp: boolean;
  udevAddsAltNames: boolean;
  /** Rates of CNI plugins. */
  cniFailureRate: number;
  cniHangRate: number;
  apiErrorRate: number;
  lostRate: number;
  /** How often something else, such as another instance, has the lock of a claim for a moment. */
  lockedRate: number;
  /** Whether claims get the names of those that are gone, as with a StatefulSet. */
  reusesNames: boolean;
  /** Whether interfaces of pods get an IPv6 address by themselves, which is ready after duplicate address detection. */
  hasIpv6: boolean;
  /** Whether the runtime lists sandboxes whose RunPodSandbox it has not answered. */
  listsUnfinished: boolean;
  /**
   * Whether a sandbox that was being created when the runtime was killed lives on without a record of its namespaces,
   * as with containerd 2.4. Not drawn: a runtime that keeps no unfinished sandboxes cannot.
   */
  losesNamespaces: boolean;
  /** Whether it lists stopped sandboxes until they are removed. */
  listsStopped: boolean;
  /** Share of cancelled RunPodSandbox calls that leave the pause process. */
  leakRate: number;
  /** Whether the kubelet cancels its work for a pod that is deleted. */
  kubeletCancels: boolean;
  bandwidth: BandwidthPlan | undefined;
  /** Absent: the driver finds all that it had stored, and is not killed for the boot. */
  boot?: BootPlan;
  /** How long the runtime takes for a sandbox after plugins have seen it. */
  slowStartMs?: number;
  /** Whether the driver reconciles every minute, as it does by default: then each event has to have its effect by itself. */
  reconcilesSeldom?: boolean;
  /** Whether reads of the API server may show an earlier state. */
  readsPast?: boolean;
  /** Whether its watches leave out states. */
  skipsStates?: boolean;
  /** Whether nothing is looked at after the time in which every pod has to run. */
  isOnlyLive?: boolean;
  /** When faults end. */
  calmAtMs: number;
  isShared: boolean;
}

/** How often the driver reconciles. */
export function reconcileMsOf({ reconcilesSeldom = false }: Pick<Plan, 'reconcilesSeldom'>): number {
  return reconcilesSeldom ? 60_000 : 10_000;
}

/** All faults have ended by then. */
export const horizonMs = 36_000;

export function drawPlan(tape: Tape): Plan {
  const podCount = tape.weighted([
    [5, 1],
    [3, 2],
    [2, 3],
  ]);
  const pods: PodPlan[] = [];
  for (let index = 0; index < podCount; index++) pods.push(drawPod(tape, index));
  // If a claim becomes free before its pod has ended, the next pod gets it reallocated, perhaps with another VF.
  for (const [index, pod] of pods.entries()) {
    if (pods[index + 1]?.takesOver === true && tape.chance(0.4)) pod.isForced = true;
  }
  const faults = drawFaults(tape, pods);
  const killCount = tape.weighted([
    [3, 0],
    [3, 1],
    [2, 2],
    [1, 4],
  ]);
  const killAfter = Array.from({ length: killCount }, () => 1 + Math.floor(300 * tape.fraction() ** 2));
  const often = (probability: number, rate: number) => (tape.chance(probability) ? rate : 0);
  const plan = {
    flavour: tape.chance(0.3) ? ('cri-o' as const) : ('containerd' as const),
    vfs: 2 + tape.below(2),
    pods,
    faults,
    killAfter,
    liveUpdates: tape.chance(0.3),
    slowShare: tape.chance(0.2) ? 0.5 : 0.1,
    renamesLinksThatAreUp: tape.chance(0.5),
    udevAddsAltNames: tape.chance(0.3),
    cniFailureRate: often(0.2, tape.chance(0.3) ? 0.7 : 0.2),
    cniHangRate: often(0.1, 0.1),
    apiErrorRate: often(0.2, 0.2),
    lostRate: often(0.1, 0.01),
    listsUnfinished: tape.chance(0.5),
    listsStopped: tape.chance(0.3),
    leakRate: often(0.5, 0.7),
    kubeletCancels: tape.chance(0.5),
    calmAtMs: horizonMs,
  };
  const losesNamespaces = plan.flavour === 'containerd' && plan.listsUnfinished;
  const others = { ...plan, losesNamespaces, ...drawMore(tape, plan) };
  const more = tape.chance(0.15, 'bond') ? { ...others, pods: others.pods.map((pod) => drawBond(tape, pod)) } : others;
  const isShared = more.faults.some(({ kind }) => kind === 'update driver');
  const isGuaranteed = tape.chance(0.08, 'guarantee') || (more.reusesNames && tape.chance(0.25, 'several'));
  return drawLast(tape, { ...more, isShared, bandwidth: isGuaranteed ? drawBandwidth(tape) : undefined });
}

/** From generators of its own, after all else: schedules without any of it do not change with it. */
function drawLast(tape: Tape, plan: Plan): Plan {
  const isSeveral = tape.chance(0.1, 'several');
  const pods = isSeveral ? plan.pods.map((pod) => drawSeveral(tape, pod)) : plan.pods;
  const failures = tape.chance(isSeveral ? 0.5 : 0.15, 'once') ? [drawOneFailure(tape, pods)] : [];
  const drawn = drawSlowStart(tape, {
    ...plan,
    // The next round would soon make up for what has failed.
    reconcilesSeldom: tape.chance(failures.length > 0 ? 0.3 : 0.06, 'rounds'),
    pods: drawVrfs(
      tape,
      pods.map((pod) => drawNames(tape, pod)),
    ),
    faults: [...plan.faults, ...failures, ...drawRefusals(tape, pods), ...drawLosses(tape, { pods })],
    readsPast: tape.chance(0.04, 'stale'),
    skipsStates: tape.chance(0.04, 'skip'),
    ...(plan.faults.some(({ kind }) => kind === 'reboot') ? { boot: drawBoot(tape, plan) } : {}),
  });
  return tape.chance(0.02, 'late') ? drawLateSuccessor(tape, drawn) : drawn;
}

/** The kubelet has forgotten a claim, and the claim gets its next pod about when the driver gives it up, 30 s after its start. */
function drawLateSuccessor(tape: Tape, plan: Plan): Plan {
  const [drawn] = plan.pods as [PodPlan];
  const deletedAfterMs = 1_500 + tape.below(2_000, 'late');
  const pod: PodPlan = { ...drawn, arrivesAtMs: 1_000, deletedAfterMs, isForced: true, isOnHost: false };
  const arrivesAtMs = 29_500 + tape.below(800, 'late');
  const next: PodPlan = { ...pod, arrivesAtMs, deletedAfterMs: undefined, isForced: false, takesOver: true };
  const forMs = 100 + tape.below(1_000, 'late');
  const forgets: Fault = { kind: 'restart kubelet', atMs: 1_000 + deletedAfterMs, forMs, isStateLost: true };
  return { ...plan, pods: [pod, next], faults: [forgets], killAfter: [], lockedRate: 0.5, isShared: false };
}

function drawBoot(tape: Tape, { settings }: Pick<Plan, 'settings'>): BootPlan {
  // The driver does not find files of the layout downward-api whose claim it no longer knows.
  const isFound = settings.every(({ layouts }) => !layouts.includes('downward-api'));
  const losesLast = tape.chance(0.3, 'boot') && isFound;
  return { losesLast, killAfter: tape.chance(0.4, 'boot') ? 1 + tape.below(40, 'boot') : 0 };
}

/** A driver that is started while a runtime creates a sandbox does not find it in the list, as with containerd 1.7. */
function drawSlowStart(tape: Tape, plan: Plan): Plan {
  if (!tape.chance(0.03, 'start')) return plan;
  const atMs = (plan.pods[0]?.arrivesAtMs ?? 0) + 300 + tape.below(4_000, 'start');
  const slowStartMs = 8_000 + tape.below(15_000, 'start');
  const faults: Fault[] = [...plan.faults, { kind: 'kill driver', atMs, forMs: 100 }];
  return { ...plan, slowStartMs, listsUnfinished: false, losesNamespaces: false, faults };
}

/** Anything that the driver does while a pod starts or ends fails, once. */
function drawOneFailure(tape: Tape, pods: readonly PodPlan[]): OneFailure {
  const times = pods.flatMap(({ arrivesAtMs, deletedAfterMs }) =>
    deletedAfterMs === undefined ? [arrivesAtMs] : [arrivesAtMs, arrivesAtMs + deletedAfterMs],
  );
  const atMs = times[tape.below(times.length, 'once')] ?? 0;
  const of = tape.pick<OneFailure['of']>(['disk', 'store', 'kernel', 'links'], 'once');
  return {
    kind: 'one fails',
    atMs,
    of,
    after: tape.below({ disk: 24, store: 26, kernel: 100, links: 20 }[of], 'once'),
  };
}

type More = Pick<
  Plan,
  | ('pods' | 'faults' | 'instantShare' | 'slowShare' | 'settings' | 'writesInVain' | 'lockedRate')
  | ('reusesNames' | 'hasIpv6')
>;

/** From a generator of its own, so that schedules without any of it are what they were. */
function drawMore(tape: Tape, plan: Pick<Plan, 'pods' | 'faults' | 'slowShare'>): More {
  const { faults, slowShare } = plan;
  const reusesNames = tape.chance(0.15, 'name');
  const pods = reusesNames ? drawReuse(tape, plan.pods) : plan.pods;
  const count = tape.weighted(
    [
      [5, 0],
      [3, 1],
      [2, 3],
    ],
    'more',
  );
  const others = Array.from({ length: count }, () => drawMoreFault(tape));
  const isContested = tape.chance(0.04, 'more');
  // A boot takes the VFs away again, and claims with them.
  const outages = drawOutages(tape);
  const hasNoVfs = tape.chance(0.04, 'numvfs') && faults.every(({ kind }) => kind !== 'reboot');
  const hasIpv6 = tape.chance(0.1, 'dad');
  return {
    writesInVain: hasNoVfs ? tape.below(3, 'numvfs') : undefined,
    faults: [
      ...(isContested ? drawContest(tape, pods) : [...faults, ...others]),
      ...outages,
      ...drawSilence(tape, outages),
      ...drawSlowness(tape),
      ...drawEnds(tape, pods),
      ...drawRestartsAfterBoot(tape, faults),
      ...(reusesNames && tape.chance(0.4, 'name') ? [drawForgottenState(tape, pods)] : []),
    ],
    slowShare: isContested ? 0.5 : slowShare,
    instantShare: tape.chance(0.15, 'more') ? 0.7 : 0,
    lockedRate: tape.chance(0.12, 'lock') ? 0.2 : 0,
    reusesNames,
    hasIpv6,
    settings: drawSettings(tape),
    pods: drawPool(
      tape,
      drawSlaac(
        tape,
        drawProperties(
          tape,
          drawCpus(tape, tape.chance(0.25, 'more') ? pods.map((pod, index) => drawMoreOfPod(tape, pod, index)) : pods),
        ),
        hasIpv6,
      ),
    ),
  };
}

/** Of a port, all VFs fit, or two, or one. */
function drawBandwidth(tape: Tape): BandwidthPlan {
  return {
    guaranteedMbps: tape.pick([4_000, 3_000, 6_000], 'guarantee'),
    otherMbps: tape.pick([6_000, 2_000], 'guarantee'),
    burst: tape.chance(0.3, 'guarantee'),
    isCounted: !tape.chance(0.4, 'guarantee'),
  };
}

const usualSettings: InstanceSettings = { metadata: true, gate: 'hook', layouts: ['v1'] };

function drawSettings(tape: Tape): More['settings'] {
  if (!tape.chance(0.15, 'more')) return [usualSettings];
  const draw = (): InstanceSettings => ({
    metadata: !tape.chance(0.4, 'more'),
    gate: tape.chance(0.3, 'more') ? 'file' : 'hook',
    layouts: tape.chance(0.3, 'more') ? ['v1', 'kep', 'attributes-json', 'downward-api'] : ['v1'],
  });
  return [draw(), draw(), draw()];
}
