import type {
  IncidentEntry,
  RecordedClaim,
  RecordedContainer,
  RecordedDevice,
  RecordedSandbox,
} from '../../../src/app/incidents/entry.ts';
import { defined } from '../../../src/lib/defined.ts';
import type { LinkState } from '../../../src/node/netlink/index.ts';
import type { Attach, ClaimPlan, Fault, FoundVf, Plan, PodPlan } from '../plan.ts';
import type { Recording } from './recording.ts';

/** What the kubelet does, and when. Times are those of the simulation. */
export type Step = { atMs: number; pod: number } & (
  | { does: 'prepare' | 'unprepare'; claimUids: string[] }
  | { does: 'run' | 'stop' | 'remove'; sandboxId: string }
  | { does: 'create'; sandboxId: string; hasDevices: boolean }
);

/** A recording as the simulation plays it. */
export interface Story {
  steps: Step[];
  /** UIDs of the pods as they were recorded, by their number in the plan. */
  podUids: string[];
  /** UIDs of the claims of each of them. */
  claimUids: string[][];
  /** By name as recorded: the name that it has in the simulation; and the same of PCI addresses. */
  devices: ReadonlyMap<string, string>;
  addresses: ReadonlyMap<string, string>;
  /** When the simulation is where the recording begins, and where it ends. */
  beginMs: number;
  endMs: number;
  /** What is not played, for people. */
  left: string[];
  plan: (usual: Plan) => Plan;
}

/** Between the call of the runtime and the event that follows from it, where the simulated one is as fast as it can be. */
const untilEventMs = { run: 21, create: 6, stop: 11, remove: 1 };
/** What the runtime is doing when it sends an event about a sandbox. */
const doneFor = { runPodSandbox: 'run', stopPodSandbox: 'stop', removePodSandbox: 'remove' } as const;
/** When the pods arrive that were there before. */
const earlyMs = 500;
const preparedMs = 1_000;
/** When a pod is deleted of which only the end of its claims is recorded. */
const lastMs = 4_000;
const killMs = 5_000;
const restartMs = 1_000;
/** From the start of an instance to its first entry. */
const startMs = 20;
/** The driver is undisturbed for some time at the end. */
const runOnMs = 2_000;
/** Drawn plans have no more. */
const usualPods = 3;

/** Makes a plan of the simulation out of a recording. */
export function tell(recording: Recording): Story {
  const { header, before, entries, beginMs: recordedMs } = recording;
  const cast = new Cast(before, entries);
  const existing = before.filter((entry) => entry.is === 'stored').map(({ claim }) => claim.uid);
  const isRestarted = header.dropped === 0 && existing.length > 0;
  const beginMs = existing.length > 0 ? killMs + restartMs : startMs;
  const toMs = (atMs: number) => atMs - recordedMs + beginMs;
  const early = earlySteps(cast, existing);
  const made = [...early, ...entries.flatMap((entry) => stepOf(cast, entry, toMs(entry.atMs)))];
  const steps = [...made, ...unseenEnds(made, entries, toMs, isRestarted)].sort((a, b) => a.atMs - b.atMs);
  const endMs = toMs(entries.at(-1)?.atMs ?? recordedMs) + runOnMs;
  const faults = [
    ...(isRestarted ? [{ kind: 'kill driver' as const, atMs: killMs, forMs: restartMs }] : []),
    ...restartsOf(entries, toMs),
  ];
  const pods = cast.podUids.map((uid, index) =>
    cast.podPlan(
      uid,
      steps.filter(({ pod }) => pod === index),
    ),
  );
  const flavour = cast.runtime === 'cri-o' ? 'cri-o' : 'containerd';
  const {
    enableDeviceMetadata: metadata = true,
    metadataLayouts: layouts = ['v1'],
    liveUpdates = true,
  } = header.settings;
  return {
    ...{ steps, podUids: cast.podUids, claimUids: cast.podUids.map((uid) => cast.claimsOf(uid).map(({ uid }) => uid)) },
    ...{ devices: cast.devices, addresses: cast.addresses, beginMs, endMs, left: cast.left },
    plan: (usual) => ({
      ...{ ...usual, flavour, pods, faults, liveUpdates, calmAtMs: endMs, vfs: cast.vfs, hasTwoPfs: cast.hasTwoPfs },
      found: cast.found,
      load: Math.ceil(Math.max(1, pods.length / usualPods)),
      settings: [{ metadata, gate: header.isGated ? 'hook' : 'file', layouts: [...layouts] }],
    }),
  };
}

/** What has to be done for the claims to be prepared, and attached, that were so at the beginning. */
function earlySteps(cast: Cast, existing: readonly string[]): Step[] {
  return cast.podUids.flatMap((podUid, pod) => {
    const claims = cast.claimsOf(podUid).filter(({ uid }) => existing.includes(uid));
    const sandboxId = claims.map(({ uid }) => cast.places.get(uid)).find((id) => id !== undefined);
    if (claims.length === 0) return [];
    const claimUids = claims.map(({ uid }) => uid);
    const prepare: Step = { atMs: preparedMs, pod, does: 'prepare', claimUids };
    if (sandboxId === undefined) return [prepare];
    const run: Step = { atMs: preparedMs + 500, pod, does: 'run', sandboxId };
    const create: Step = { atMs: preparedMs + 1_000, pod, does: 'create', sandboxId, hasDevices: true };
    return cast.hasContainer(sandboxId) ? [prepare, run, create] : [prepare, run];
  });
}

function stepOf(cast: Cast, entry: IncidentEntry, atMs: number): Step[] {
  const inSandbox = (sandbox: RecordedSandbox, step: (sandboxId: string, pod: number) => Step) => {
    const pod = cast.podUids.indexOf(sandbox.podUid);
    return pod === -1 ? [] : [step(sandbox.id, pod)];
  };
  switch (entry.is) {
    case 'prepare':
    case 'unprepare': {
      if (entry.isOwn) return [];
      const byPod = Map.groupBy(entry.claims, ({ uid }) => cast.ownerOf(uid));
      return [...byPod].flatMap(([pod, claims]): Step[] =>
        pod === -1 ? [] : [{ atMs, pod, does: entry.is, claimUids: claims.map(({ uid }) => uid) }],
      );
    }
    case 'runPodSandbox':
    case 'stopPodSandbox':
    case 'removePodSandbox': {
      const does = doneFor[entry.is];
      return inSandbox(entry.sandbox, (sandboxId, pod) => ({ atMs: atMs - untilEventMs[does], pod, does, sandboxId }));
    }
    case 'createContainer': {
      const hasDevices = entry.container.cdiDevices > 0;
      return inSandbox(entry.sandbox, (sandboxId, pod) => {
        return { atMs: atMs - untilEventMs.create, pod, does: 'create', sandboxId, hasDevices };
      });
    }
    default:
      return [];
  }
}

/** Sandboxes that a list of the runtime does not show, and whose end no event has reported: a driver was not connected. */
function unseenEnds(
  steps: readonly Step[],
  entries: readonly IncidentEntry[],
  toMs: (atMs: number) => number,
  isRestarted: boolean,
): Step[] {
  const ended = new Set<string>();
  return entries.flatMap((entry, index): Step[] => {
    if (entry.is !== 'synchronize') return [];
    const listMs = toMs(entry.atMs);
    const listed = entry.sandboxes.map(({ id }) => id);
    const isFirst = isRestarted && !entries.slice(0, index).some(({ is }) => is === 'synchronize');
    return steps.flatMap((step): Step[] => {
      if (step.does !== 'run' || step.atMs > listMs || listed.includes(step.sandboxId)) return [];
      const { pod, sandboxId } = step;
      const isKnown = steps.some((each) => {
        return (
          'sandboxId' in each && each.sandboxId === sandboxId && endings.includes(each.does) && each.atMs <= listMs
        );
      });
      if (isKnown || ended.has(sandboxId)) return [];
      ended.add(sandboxId);
      return [{ atMs: isFirst ? killMs + restartMs / 2 : listMs - unseenMs, pod, does: 'stop', sandboxId }];
    });
  });
}

const endings: readonly string[] = ['stop', 'remove'];
/** How long before a list a sandbox is stopped that is not in it. */
const unseenMs = 100;

/** Of a runtime that restarts. */
const shortestMs = 1_000;

/** A connection that ends is taken for that of a runtime that restarts. */
function restartsOf(entries: readonly IncidentEntry[], toMs: (atMs: number) => number): Fault[] {
  return entries.flatMap(({ is, atMs }, index): Fault[] => {
    if (is !== 'disconnected') return [];
    const back = entries.slice(index).find((entry) => entry.is === 'synchronize');
    const forMs = back === undefined ? shortestMs : back.atMs - atMs;
    return [{ kind: 'restart runtime', atMs: toMs(atMs), forMs }];
  });
}

/** The pods, claims and devices of a recording. */
class Cast {
  readonly podUids: string[] = [];
  readonly devices = new Map<string, string>();
  readonly addresses = new Map<string, string>();
  /** By UID of a claim: the sandbox that it was in at the beginning. */
  readonly places = new Map<string, string>();
  readonly left: string[] = [];
  /** By name in the simulation. */
  readonly found = new Map<string, FoundVf>();
  readonly hasTwoPfs: boolean;
  readonly vfs: number;
  runtime = '';
  readonly #claims = new Map<string, RecordedClaim>();
  readonly #containers = new Map<string, RecordedContainer>();
  /** Ids of sandboxes with containers, in the first list of the runtime. */
  #listed: Set<string> | undefined;
  readonly #sandboxes = new Map<string, RecordedSandbox>();

  constructor(before: readonly IncidentEntry[], entries: readonly IncidentEntry[]) {
    for (const entry of before) {
      if (entry.is === 'placed' && entry.sandboxId !== undefined) this.places.set(entry.claimUid, entry.sandboxId);
    }
    const known = new Map<string, RecordedDevice>();
    const hosts = new Map<string, LinkState>();
    for (const entry of [...before, ...entries]) {
      if (entry.is === 'connected') this.runtime = entry.runtime;
      if (entry.is === 'prepare') for (const claim of entry.claims) this.#meet(claim);
      if (entry.is === 'stored') {
        // The first one says how it was found.
        for (const device of entry.devices) known.set(device.name, { ...device, ...known.get(device.name) });
        if (!this.#claims.has(entry.claim.uid)) this.#meet(storedClaim(entry));
      }
      if (entry.is === 'placed' && entry.host !== undefined && !hosts.has(entry.pciAddress)) {
        hosts.set(entry.pciAddress, entry.host);
      }
      if (entry.is === 'synchronize') {
        this.#listed ??= new Set(entry.containers.map(({ sandboxId }) => sandboxId));
      }
      if (entry.is === 'runPodSandbox') this.#sandboxes.set(entry.sandbox.podUid, entry.sandbox);
      if (entry.is === 'createContainer' && entry.container.cdiDevices > 0) {
        this.#containers.set(entry.sandbox.podUid, entry.container);
      }
    }
    const names = [
      ...new Set([...this.#claims.values()].flatMap(({ results }) => results.map(({ device }) => device))),
    ];
    const pfs = [...new Set(names.map((name) => known.get(name)?.pfAddress))];
    this.hasTwoPfs = pfs.length > 1;
    if (pfs.length > 2) this.left.push(`${pfs.length} PFs: the simulated card has two`);
    const taken = [0, 0];
    for (const name of names) {
      const pf = this.hasTwoPfs ? pfs.indexOf(known.get(name)?.pfAddress) % 2 : 0;
      const number = taken[pf]!++;
      const index = this.hasTwoPfs ? 2 * number + pf : number;
      const slot = (2 + Math.floor(index / 8)).toString(16).padStart(2, '0');
      const { pciAddress = '', before } = known.get(name) ?? {};
      const { mtuBytes, up, altNames } = before?.link ?? hosts.get(pciAddress) ?? {};
      // The rules know no VLAN that is neither drawn nor asked for.
      const { vlan: _vlan, ...settings } = before?.vf ?? {};
      this.found.set(`0000-01-${slot}-${index % 8}`, { link: defined({ mtuBytes, up, altNames }), settings });
      this.devices.set(name, `0000-01-${slot}-${index % 8}`);
      this.addresses.set(pciAddress, `0000:01:${slot}.${index % 8}`);
    }
    this.vfs = Math.max(2, 2 * Math.max(...taken));
  }

  /** At the beginning, if nothing says otherwise. */
  hasContainer(sandboxId: string): boolean {
    return this.#listed?.has(sandboxId) ?? true;
  }

  claimsOf(podUid: string): RecordedClaim[] {
    return [...this.#claims.values()].filter(({ podUids }) => podUids[0] === podUid);
  }

  /** @returns the number of its pod */
  ownerOf(claimUid: string): number {
    return this.podUids.indexOf(this.#claims.get(claimUid)?.podUids[0] ?? '');
  }

  podPlan(podUid: string, steps: readonly Step[]): PodPlan {
    const arrivesAtMs = Math.min(earlyMs, ...steps.map(({ atMs }) => atMs - 5));
    const first = Math.max(0, Math.min(...steps.map(({ atMs }) => atMs)) - 5);
    // A pod was deleted before its last sandbox was stopped if its claims were unprepared after it.
    const end = steps.findLast(({ does }) => does === 'unprepare');
    const stop = steps.findLast(({ does, atMs }) => does === 'stop' && atMs <= (end?.atMs ?? 0));
    const arrives = steps.some(({ atMs }) => atMs <= preparedMs) ? Math.max(0, arrivesAtMs) : first;
    const { cpus = '', shares = 0 } = this.#containers.get(podUid) ?? {};
    const claims = this.claimsOf(podUid).map((claim) => this.#claimPlan(claim));
    const isPinned = claims.some(({ config }) => 'numa' in config) && shares >= 1_024;
    if (isPinned) this.left.push(`CPUs ${cpus} of pod ${podUid}: the simulated machine has four`);
    return {
      ...{
        arrivesAtMs: arrives,
        claims,
        takesOver: false,
        shares: false,
        vfLeavesTo: undefined,
        restartPolicy: 'Always',
      },
      isOnHost: this.#sandboxes.get(podUid)?.netns === '',
      deletedAfterMs: end === undefined ? undefined : Math.max(1, (stop?.atMs ?? lastMs) - arrives - 1),
      ...{ isForced: false, mutations: 0, exits: 0, cpus: [] },
    };
  }

  #claimPlan({ results, config }: RecordedClaim): ClaimPlan {
    // Those of a claim come after those of its class.
    const parameters = config.map(({ opaque }) => opaque?.parameters ?? {});
    const { apiVersion: _version, kind: _kind, ...merged } = Object.assign({}, ...parameters);
    const attach: Attach = merged.attach ?? (merged.driver === 'vfio-pci' ? 'user-space' : 'netlink');
    const names = results.map(({ device }) => this.devices.get(device) ?? device);
    return {
      ...{ attach, vfs: results.length, devices: names, config: merged, ipam: merged.ipam !== undefined },
      isOneRequest: new Set(results.map(({ request }) => request)).size === 1,
      adminAccess: results.some(({ adminAccess }) => adminAccess),
      isBond: merged.bond !== undefined,
    };
  }

  #meet(claim: RecordedClaim): void {
    const known = this.#claims.get(claim.uid);
    const [podUid] = known?.podUids ?? claim.podUids;
    if (podUid === undefined) return;
    if (!this.podUids.includes(podUid)) this.podUids.push(podUid);
    if (claim.podUids.some((uid) => uid !== podUid)) {
      this.left.push(`other pods of claim ${claim.namespace}/${claim.name}: only the first one is played`);
    }
    this.#claims.set(claim.uid, { ...claim, podUids: [podUid] });
  }
}

/** A claim of which only the record is known. */
function storedClaim({ claim, podUids, devices }: IncidentEntry & { is: 'stored' }): RecordedClaim {
  return {
    ...{ ...claim, podUids },
    results: devices.map(({ name, request = 'nic' }) => ({ request, device: name })),
    config: devices.slice(0, 1).map(({ config = {} }) => {
      return { source: 'FromClass', opaque: { driver: '', parameters: config } };
    }),
  };
}
