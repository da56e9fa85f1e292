import type { LayoutName } from '../../src/framework/metadata/index.ts';
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

type PlainFault =
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
  /** When faults end. */
  calmAtMs: number;
  isShared: boolean;
}

/** How often the driver reconciles. */
export function reconcileMsOf({ reconcilesSeldom = false }: Pick<Plan, 'reconcilesSeldom'>): number {
  return reconcilesSeldom ? 60_000 : 10_000;
}

/** All faults have ended by then. */
const horizonMs = 36_000;

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
    pods: pods.map((pod) => drawNames(tape, pod)),
    faults: [...plan.faults, ...failures, ...drawRefusals(tape, pods)],
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

/** A claim is allocated again for the next pod, and the devices that it had cannot be restored at first. */
function drawRefusals(tape: Tape, pods: readonly PodPlan[]): Fault[] {
  return pods.flatMap((pod, index): Fault[] => {
    const before = pods[index - 1];
    if (!pod.takesOver || before?.isForced !== true || !tape.chance(0.4, 'again')) return [];
    const freeAtMs = before.arrivesAtMs + (before.deletedAfterMs ?? 0);
    const atMs = Math.max(pod.arrivesAtMs, freeAtMs) + tape.below(2_500, 'again');
    const kind = tape.pick(['card refuses', 'interfaces late', 'store error', 'kill driver'] as const, 'again');
    return [{ kind, atMs, forMs: 1_000 + tape.below(6_000, 'again') }];
  });
}

/** A driver that is started while a runtime creates a sandbox does not find it in the list, as with containerd 1.7. */
function drawSlowStart(tape: Tape, plan: Plan): Plan {
  if (!tape.chance(0.03, 'start')) return plan;
  const atMs = (plan.pods[0]?.arrivesAtMs ?? 0) + 300 + tape.below(4_000, 'start');
  const slowStartMs = 8_000 + tape.below(15_000, 'start');
  const faults: Fault[] = [...plan.faults, { kind: 'kill driver', atMs, forMs: 100 }];
  return { ...plan, slowStartMs, listsUnfinished: false, losesNamespaces: false, faults };
}

/** The pod's first claim has two VFs, mostly in requests of their own; in some pods both leave it. */
function drawSeveral(tape: Tape, pod: PodPlan): PodPlan {
  const [first, ...others] = pod.claims as [ClaimPlan, ...ClaimPlan[]];
  if (first.isBond || first.isBroken || first.attach === 'observe') return pod;
  // What only one VF can have.
  const {
    interfaceName: _1,
    macAddress: _2,
    addresses: _3,
    routes: _4,
    ...config
  } = first.config as Record<string, unknown>;
  const isOneRequest = tape.chance(0.2, 'several');
  const leaves = tape.chance(0.5, 'several')
    ? { vfLeavesTo: tape.pick(['own', 'host'] as const, 'several'), leavesTwice: tape.chance(0.7, 'several') }
    : {};
  return { ...pod, ...leaves, claims: [{ ...first, vfs: 2, isOneRequest, config }, ...others] };
}

/** Members of a bond may have names, too. */
function drawNames(tape: Tape, pod: PodPlan): PodPlan {
  const claims = pod.claims.map((claim) => {
    const isNamed = claim.isBond && claim.isOneRequest && tape.chance(0.5, 'several');
    return isNamed ? { ...claim, config: { ...claim.config, interfaceName: 'member%d' } } : claim;
  });
  return { ...pod, claims };
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
    hasIpv6: tape.chance(0.1, 'dad'),
    settings: drawSettings(tape),
    pods: drawProperties(
      tape,
      drawCpus(tape, tape.chance(0.25, 'more') ? pods.map((pod, index) => drawMoreOfPod(tape, pod, index)) : pods),
    ),
  };
}

/** Pods are deleted by force, and their successors have claims of the same names: for a time the driver has both. */
function drawReuse(tape: Tape, pods: PodPlan[]): PodPlan[] {
  const [first] = pods as [PodPlan, ...PodPlan[]];
  let earliestMs = 0;
  return (pods.length === 1 ? [first, { ...first }] : pods).map((pod) => {
    const arrivesAtMs = Math.max(earliestMs, pod.arrivesAtMs % 6_000);
    const deletedAfterMs = 200 + tape.below(6_000, 'name');
    earliestMs = arrivesAtMs + deletedAfterMs + tape.below(1_500, 'name');
    return { ...pod, arrivesAtMs, deletedAfterMs, isForced: tape.chance(0.7, 'name'), takesOver: false };
  });
}

/** The kubelet forgets its claims when a pod ends whose successor has claims of the same names. */
function drawForgottenState(tape: Tape, pods: readonly PodPlan[]): Fault {
  const [{ arrivesAtMs = 0, deletedAfterMs = 0 } = {}] = pods;
  const atMs = arrivesAtMs + deletedAfterMs + tape.below(1_000, 'name');
  return { kind: 'restart kubelet', atMs, forMs: 100 + tape.below(1_000, 'name'), isStateLost: true };
}

/** Faults while a pod ends: no container waits for what fails then. */
function drawEnds(tape: Tape, pods: readonly PodPlan[]): Fault[] {
  if (!tape.chance(0.15, 'end')) return [];
  const ends = pods.flatMap(({ arrivesAtMs, deletedAfterMs }) =>
    deletedAfterMs === undefined ? [] : arrivesAtMs + deletedAfterMs,
  );
  const endsAtMs = ends[tape.below(ends.length, 'end')];
  if (endsAtMs === undefined) return [];
  return Array.from({ length: 1 + tape.below(3, 'end') }, (): Fault => {
    const atMs = endsAtMs + Math.floor(2_000 * tape.fraction('end') ** 2);
    const forMs = 100 + Math.floor(4_000 * tape.fraction('end') ** 2);
    const kind = tape.pick<PlainFault>(
      ['disk error', 'store error', 'card refuses', 'kill driver', 'stall driver', 'disk full'],
      'end',
    );
    return { kind, atMs, forMs };
  });
}

/** The driver is started twice in the same boot of the node. */
function drawRestartsAfterBoot(tape: Tape, faults: readonly Fault[]): Fault[] {
  return faults.flatMap((fault): Fault[] => {
    if (fault.kind !== 'reboot' || !tape.chance(0.5, 'end')) return [];
    return [{ kind: 'kill driver', atMs: fault.atMs + fault.forMs + 3_000 + tape.below(8_000, 'end'), forMs: 100 }];
  });
}

/** Some claims ask for more of what only the PF can set. */
function drawProperties(tape: Tape, pods: PodPlan[]): PodPlan[] {
  if (!tape.chance(0.15, 'vf')) return pods;
  return pods.map((pod) => ({
    ...pod,
    claims: pod.claims.map((claim, index) => {
      if (claim.attach === 'observe' || claim.isBroken) return claim;
      const vf = {
        ...(claim.config as { vf?: object }).vf,
        ...(tape.chance(0.5, 'vf') ? { trust: true } : {}),
        ...(tape.chance(0.5, 'vf') ? { spoofCheck: false } : {}),
        ...(tape.chance(0.3, 'vf') ? { linkState: 'enable' } : {}),
      };
      const { addresses } = claim.config as { addresses?: string[] };
      const hasRoute = claim.attach === 'netlink' && addresses !== undefined && tape.chance(0.5, 'vf');
      const routes = hasRoute ? { routes: [{ destination: `198.51.${100 + index}.0/24`, gateway: '192.0.2.1' }] } : {};
      return { ...claim, config: { ...claim.config, vf, ...routes } };
    }),
  }));
}

/** Some pods get CPUs of their own, on either socket or on both. */
function drawCpus(tape: Tape, pods: PodPlan[]): PodPlan[] {
  if (!tape.chance(0.15, 'numa')) return pods;
  return pods.map((pod) => ({
    ...pod,
    cpus: tape.pick([[], [0, 1], [2], [1, 2]], 'numa'),
    claims: pod.claims.map((claim) => {
      const numa = tape.pick([undefined, 'require', 'report'], 'numa');
      return numa === undefined ? claim : { ...claim, config: { ...claim.config, numa } };
    }),
  }));
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

/**
 * Two instances serve a pod, the newer one stops while it waits for the older one, or may do so, and goes on when the pod has
 * its next sandbox.
 */
function drawContest(tape: Tape, pods: readonly PodPlan[]): Fault[] {
  const startMs = pods[0]?.arrivesAtMs ?? 0;
  const stallMs = startMs + 100 + tape.below(1_500, 'more');
  const lostAfterMs = 100 + tape.below(2_000, 'more');
  const forMs = 4_000 + tape.below(4_000, 'more');
  return [
    { kind: 'update driver', atMs: startMs - 500, forMs: 20_000, isKilled: true },
    { kind: 'stall in wait', atMs: startMs, forMs: 2 * forMs, lostAfterMs },
    { kind: 'stall driver', atMs: stallMs, forMs },
    { kind: 'lose sandbox', atMs: stallMs + lostAfterMs, forMs: 0, isDriverAway: false },
  ];
}

/** One outage of the card's cable, or a link that flaps. From a generator of its own, like the rest of what came later. */
function drawOutages(tape: Tape): Fault[] {
  if (!tape.chance(0.12, 'cable')) return [];
  const flaps = 2 + tape.below(12, 'cable');
  const [count, longestMs] = tape.chance(0.4, 'cable') ? [flaps, 3_000] : [1, 25_000];
  let atMs = 0;
  return Array.from({ length: count }, (): Fault => {
    atMs += 500 + tape.below(longestMs > 3_000 ? 15_000 : 2_500, 'cable');
    const forMs = 100 + tape.below(longestMs, 'cable');
    const outage = { kind: 'cable out' as const, atMs, forMs };
    atMs += forMs;
    return outage;
  }).filter(({ atMs }) => atMs < horizonMs - 10_000);
}

/** One time without an LACP partner; not together with outages of the cable, whose taints are counted. */
function drawSilence(tape: Tape, outages: readonly Fault[]): Fault[] {
  if (!tape.chance(0.1, 'lacp') || outages.length > 0) return [];
  const atMs = 500 + tape.below(15_000, 'lacp');
  return [{ kind: 'partner lost', atMs, forMs: 100 + tape.below(horizonMs - 11_000 - atMs, 'lacp') }];
}

/** A time in which CNI and IPAM plugins take seconds, and interfaces appear late. */
function drawSlowness(tape: Tape): Fault[] {
  if (!tape.chance(0.08, 'slow')) return [];
  return [{ kind: 'devices slow', atMs: tape.below(5_000, 'slow'), forMs: 5_000 + tape.below(20_000, 'slow') }];
}

function drawMoreFault(tape: Tape): Fault {
  const atMs = Math.floor(500 + 25_000 * tape.fraction('more') ** 1.5);
  const forMs = 100 + Math.floor(6_000 * tape.fraction('more') ** 2);
  const kind = tape.weighted<Fault['kind']>(
    [
      [3, 'reads fail'],
      [3, 'damage file'],
      [1, 'stall runtime'],
      [1, 'stall kubelet'],
      [2, 'card refuses'],
      [1, 'interfaces late'],
      [1, 'clock step'],
    ],
    'more',
  );
  if (kind === 'reads fail') return { kind, atMs, forMs, of: tape.pick(['files', 'store', 'card'], 'more') };
  if (kind === 'clock step') return { kind, atMs, byMs: tape.pick([3_600_000, -3_600_000, 4_000, -4_000], 'more') };
  if (kind !== 'damage file') return { kind: kind as PlainFault, atMs, forMs };
  const of = tape.chance(0.2, 'CDI') ? 'CDI spec' : tape.pick<Damage['of']>(['gate', 'metadata'], 'more');
  return { kind, atMs, of, how: tape.pick<Damage['how']>(['empty', 'torn', 'newer', 'removed'], 'more') };
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

function drawMoreOfPod(tape: Tape, pod: PodPlan, index: number): PodPlan {
  const [first, ...others] = pod.claims as [ClaimPlan, ...ClaimPlan[]];
  const isObserver = tape.chance(0.3, 'more');
  const shares = index > 0 && !pod.takesOver && tape.chance(0.3, 'more');
  const isOnHost = tape.chance(0.2, 'more');
  const vfLeavesTo = tape.chance(0.3, 'more') ? tape.pick(['host', 'own'] as const, 'more') : undefined;
  const claims = isObserver ? pod.claims.map((claim) => ({ ...claim, adminAccess: true })) : pod.claims;
  const isBroken = others.length > 0 && !isObserver && tape.chance(0.6, 'more');
  if (!isBroken) return { ...pod, claims, shares, isOnHost, vfLeavesTo };
  const cni = { cniVersion: '1.0.0', name: 'net', type: 'sriov', isBroken };
  const broken: ClaimPlan = { ...first, attach: 'cni', ipam: false, isBroken, config: { attach: 'cni', cni } };
  return { ...pod, claims: [broken, ...others], shares, isOnHost, vfLeavesTo };
}

function drawPod(tape: Tape, index: number): PodPlan {
  const arrivesAtMs = 1_000 + (index === 0 ? 0 : tape.below(15_000));
  const claimCount = tape.weighted([
    [4, 1],
    [1, 2],
  ]);
  const claims = Array.from({ length: claimCount }, (_, number) => drawClaim(tape, number));
  return {
    arrivesAtMs,
    claims,
    takesOver: index > 0 && tape.chance(0.2),
    ...{ shares: false, isOnHost: false, vfLeavesTo: undefined },
    restartPolicy: tape.chance(0.5) ? 'Never' : 'Always',
    deletedAfterMs: tape.chance(0.6) ? 200 + Math.floor(20_000 * tape.fraction() ** 2) : undefined,
    isForced: tape.chance(0.1),
    mutations: tape.weighted([
      [7, 0],
      [2, 1],
      [1, 3],
    ]),
    exits: tape.weighted([
      [8, 0],
      [2, 1],
    ]),
    cpus: [],
  };
}

/** The pod's first claim has a bond, of VFs of two PFs. */
function drawBond(tape: Tape, pod: PodPlan): PodPlan {
  const [first, ...others] = pod.claims as [ClaimPlan, ...ClaimPlan[]];
  const ipam = tape.chance(0.2, 'bond');
  const config = {
    bond: { name: 'bond0' },
    ...(tape.chance(0.5, 'bond') ? { addresses: ['192.0.2.7/24'] } : {}),
    ...(tape.chance(0.3, 'bond') ? { mtu: 4000 } : {}),
    ...(tape.chance(0.3, 'bond') ? { vf: { vlan: 100 } } : {}),
    ...(ipam ? { ipam: { type: 'ipam' } } : {}),
  };
  const isOneRequest = tape.chance(0.3, 'bond');
  const { isBroken: _isBroken, ...usual } = first;
  return {
    ...pod,
    claims: [{ ...usual, attach: 'netlink', vfs: 2, isOneRequest, isBond: true, ipam, config }, ...others],
  };
}

function drawClaim(tape: Tape, number: number): ClaimPlan {
  const attach = tape.weighted<Attach>([
    [6, 'netlink'],
    [2, 'cni'],
    [2, 'user-space'],
    [1, 'observe'],
  ]);
  const vfs = tape.weighted([
    [5, 1],
    [1, 2],
  ]);
  const ipam = (attach === 'netlink' || attach === 'user-space') && tape.chance(0.4);
  const adminAccess = tape.chance(0.05);
  const isOneRequest = vfs === 1 || tape.chance(0.5);
  const config = drawConfig(tape, attach, vfs === 1 ? `fast${number}` : `fast${number}x%d`, ipam);
  if (!isOneRequest) delete config.interfaceName;
  return { attach, vfs, isOneRequest, ipam, adminAccess, config };
}

function drawConfig(tape: Tape, attach: Attach, interfaceName: string, ipam: boolean): { interfaceName?: string } {
  const isSingle = !interfaceName.endsWith('%d');
  const withName = tape.chance(0.4);
  const withMac = isSingle && tape.chance(0.3);
  const withAddress = isSingle && attach === 'netlink' && tape.chance(0.4);
  const withMtu = attach === 'netlink' && tape.chance(0.3);
  const withVlan = attach !== 'observe' && tape.chance(0.3);
  return {
    ...(attach === 'cni' ? { attach, cni: { cniVersion: '1.0.0', name: 'net', type: 'sriov', vlan: 40 } } : {}),
    ...(attach === 'observe' ? { attach } : {}),
    ...(attach === 'user-space' ? { driver: 'vfio-pci' } : {}),
    ...(ipam ? { ipam: { type: 'ipam' } } : {}),
    ...(withName && attach !== 'user-space' && attach !== 'observe' ? { interfaceName } : {}),
    ...(withMac && attach !== 'observe' ? { macAddress: '02:11:22:33:44:55' } : {}),
    ...(withAddress ? { addresses: ['192.0.2.7/24'] } : {}),
    ...(withMtu ? { mtu: 4000 } : {}),
    ...(withVlan ? { vf: { vlan: 100 } } : {}),
  };
}

/** Some faults come together, while a pod starts: bugs that need several of them are seldom found otherwise. */
function drawFaults(tape: Tape, pods: readonly PodPlan[]): Fault[] {
  const count = tape.weighted([
    [3, 0],
    [4, 1],
    [3, 2],
    [1, 4],
  ]);
  const middle = count > 1 && tape.chance(0.5) ? pods[tape.below(pods.length)]?.arrivesAtMs : undefined;
  return Array.from({ length: count }, (): Fault => {
    const fraction = tape.fraction() ** 1.5;
    const atMs = Math.floor(middle === undefined ? 500 + 25_000 * fraction : middle + 3_000 * fraction);
    const forMs = 100 + Math.floor(10_000 * tape.fraction() ** 2);
    const kind = tape.weighted<Fault['kind']>([
      [3, 'kill driver'],
      [2, 'restart runtime'],
      [3, 'restart kubelet'],
      [2, 'lose sandbox'],
      [1, 'stall driver'],
      [1, 'reset card'],
      [1, 'reboot'],
      [1, 'API server away'],
      [1, 'disk full'],
      [1, 'disk error'],
      [1, 'store error'],
      [2, 'update driver'],
      [1, 'change policy'],
    ]);
    if (kind === 'update driver') return { kind, atMs, forMs: 3 * forMs, isKilled: tape.chance(0.5) };
    if (kind === 'restart kubelet') return { kind, atMs, forMs, isStateLost: tape.chance(0.15) };
    if (kind === 'lose sandbox') return { kind, atMs, forMs, isDriverAway: tape.chance(0.4) };
    return { kind: kind as PlainFault, atMs, forMs };
  });
}
