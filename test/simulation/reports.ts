import { isUserSpace, type StoredCondition, type StoredDevice } from '../../src/driver/model/index.ts';
import type { AllocatedDeviceStatus } from '../../src/framework/kube/index.ts';
import type { Device, ResourceSlice } from '../../src/framework/resourceslice/index.ts';
import { driverName, type SimClaim } from './api-server.ts';
import type { SimVf } from './hardware.ts';
import type { Instance } from './instance.ts';
import { farVfs } from './numa.ts';
import type { SimSandbox } from './sandboxes.ts';
import type { Process } from './simulator.ts';
import type { Node } from './world.ts';

/** Time in which an undisturbed driver has a taint in its slices after the card has lost its cable. */
const noticeMs = 10_000;
/** The same for VFs to have no link after the PF has lost its LACP partner: a hook may hold the lock of the claim meanwhile. */
const silenceMs = 20_000;
/** Time that the taint stays after the link is back, at least. */
const holdMs = 10_000;
/** In a schedule: the holds are 10, 20, 40 s and so on, and faults end after 36 s. */
const maxTaintChanges = 8;

/** Compares what the driver reports to the cluster with the node. What it reports may be late, so this is for calm times. */
export class Reports {
  readonly #node: Node;
  /** By claim UID: the process that has released its devices. */
  readonly #releasedBy = new Map<string, Process>();

  /** Whether the driver has stored that the card has no carrier: it looks every two seconds, and misses short outages. */
  #isKnownToLackCable = false;
  /** When the card has got its cable back after an outage that the driver knew of. */
  #pluggedInAtMs = Number.NEGATIVE_INFINITY;
  /** PCI addresses of the VFs of claims when the PF lost its LACP partner. */
  #servedAtLoss: string[] = [];
  /** How often a slice with a taint became one without, or the reverse. */
  #taintChanges = 0;
  readonly #onViolation: (rule: string, message: string) => void;

  constructor(node: Node, onViolation: (rule: string, message: string) => void) {
    this.#node = node;
    this.#onViolation = onViolation;
    node.apiServer.onSlice = (before, after) => this.#sliceChanges(before, after);
  }

  conditionStored({ condition, overMs }: StoredCondition): void {
    if (condition === 'no-carrier') this.#isKnownToLackCable = overMs === undefined;
  }

  /** The card had no cable for some time, and has one from now on. */
  cablePluggedIn(afterMs: number): void {
    const { apiServer, plan, simulator } = this.#node;
    if (this.#isKnownToLackCable) this.#pluggedInAtMs = simulator.nowMs;
    const isDue = afterMs >= noticeMs && plan.apiErrorRate === 0 && this.#node.isUndisturbedFor(noticeMs);
    const [pf] = this.#node.hardware.pfs;
    const own = new Set(this.#node.hardware.vfs.flatMap((vf) => (vf.pf === pf ? vf.name : [])));
    const untainted = apiServer.offered().filter(({ name, taints = [] }) => own.has(name) && taints.length === 0);
    if (!isDue || untainted.length === 0) return;
    const names = untainted.map(({ name }) => name).join(' and ');
    this.#onViolation('no-taint', `the card had no cable for ${afterMs / 1_000} s, and ${names} no taint`);
  }

  /** The PF loses its LACP partner. */
  partnerLost(): void {
    this.#servedAtLoss = this.#served().map(({ pciAddress }) => pciAddress);
  }

  /** It has one again from now on. The claims' VFs have had no link meanwhile. */
  partnerBack(afterMs: number): void {
    const { plan, hardware } = this.#node;
    // A change of the policy, or a reset, gives the VFs their link for a moment.
    const isDisturbed = plan.faults.some(({ kind }) => kind === 'reset card' || kind === 'change policy');
    if (afterMs < silenceMs || isDisturbed || !this.#node.isUndisturbedFor(silenceMs)) return;
    for (const { pciAddress, name } of this.#served()) {
      const vf = hardware.find(pciAddress);
      if (!this.#servedAtLoss.includes(pciAddress) || vf?.pf !== hardware.pfs[0]) continue;
      if (vf.settings.linkState !== 'disable')
        this.#onViolation('not-relayed', `${name} has a link, ${afterMs / 1_000} s after its PF has lost its partner`);
    }
  }

  /** The VFs of prepared claims. */
  #served(): StoredDevice[] {
    const claims = this.#node.registered()?.store.claims() ?? [];
    return claims.flatMap(({ state, devices }) => (state === 'prepared' ? devices : []));
  }

  /** A link that flaps changes the slices a few times, and a taint ends late. */
  #sliceChanges(before: ResourceSlice, after: ResourceSlice): void {
    const isTainted = ({ spec }: ResourceSlice) => spec.devices?.some(({ taints = [] }) => taints.length > 0) === true;
    const names = new Set(after.spec.devices?.map(({ name }) => name));
    const isSame = before.spec.devices?.every(({ name }) => names.has(name)) === true;
    if (!isSame || isTainted(before) === isTainted(after)) return;
    this.#taintChanges += 1;
    const sinceMs = this.#node.simulator.nowMs - this.#pluggedInAtMs;
    // Of two instances one may notice later, and publishes until then what it knows: a change is put back, and made again.
    const hasTwo = this.#node.plan.faults.some(({ kind }) => kind === 'update driver');
    const isExcused = hasTwo || this.#node.plan.faults.some(({ kind }) => kind === 'clock step');
    if (isTainted(before) && sinceMs < holdMs && !isExcused)
      this.#onViolation('taint-ends-early', `the taint has gone ${sinceMs} ms after the cable was plugged in`);
    if (this.#taintChanges > (hasTwo ? 3 : 1) * maxTaintChanges)
      this.#onViolation('taint-flaps', `the slices have changed ${this.#taintChanges} times with a link that flaps`);
  }

  /** A process has stored that a claim is not prepared any more. */
  released(claimUid: string, process: Process): void {
    this.#releasedBy.set(claimUid, process);
  }

  /** @param isUnchanged whether the pod has left the interfaces in its sandbox as they were; absent: status is not checked */
  *disagreements(isUnchanged: ((sandbox: SimSandbox) => boolean) | undefined): Generator<string> {
    const instance = this.#node.registered();
    if (instance === undefined) return yield 'the driver does not run';
    const { ready, report } = instance.readiness.answer();
    if (!ready) yield `the driver is not ready: ${report}`;
    if (this.#node.hardware.isOff) yield 'the VFs that the policy asks for are not there';
    yield* this.#ofSlices(instance);
    yield* this.#ofHealth(instance);
    yield* this.#ofView(instance);
    for (const { pciAddress, name } of this.#served()) {
      const { linkState } = this.#node.hardware.find(pciAddress)?.settings ?? {};
      if (linkState === 'disable') yield `${name} has no link, and its PF has its partner`;
    }
    if (isUnchanged !== undefined) yield* this.#ofStatus(instance, isUnchanged);
  }

  /** Each VF is offered exactly once, one that is not restored with a taint; one that something else has taken is not offered. */
  #ofSlices({ store }: Instance): string[] {
    const { apiServer, hardware } = this.#node;
    const offered = Map.groupBy(apiServer.offered(), ({ name }) => name);
    // A reset of the card binds a VF to its own driver, and the application of its pod does not get it back.
    const lostToPods = new Set(
      store
        .claims()
        .flatMap(({ state, devices }) => (state === 'prepared' ? devices : []))
        .filter((device) => isUserSpace(device) && device.attachment !== undefined)
        .map(({ pciAddress }) => pciAddress),
    );
    const unrestored = new Set(store.unrestored().map(({ device }) => device.pciAddress));
    const unexpected = [...offered.keys()].filter((name) => !hardware.vfs.some((vf) => vf.name === name));
    const problems = unexpected.map((name) => `${name} is offered and does not exist`);
    for (const vf of hardware.vfs) {
      const isHeld = store.holderOf(vf.pciAddress) !== undefined;
      const isLost = !isHeld && vf.link !== undefined && !vf.link.namespace.isHost;
      const isUnrestored = unrestored.has(vf.pciAddress);
      const expected = isLost && !isUnrestored ? 0 : 1;
      const [device, ...more] = offered.get(vf.name) ?? [];
      const count = device === undefined ? 0 : 1 + more.length;
      if (count !== expected) problems.push(`${vf.name} is offered ${count} times, not ${expected}`);
      if (device !== undefined && !isUnrestored) problems.push(...this.#differencesOf(device, vf, isHeld));
      const taints = device?.taints?.map(({ key }) => key).join();
      const isLostToPod = lostToPods.has(vf.pciAddress) && vf.driver === vf.ownDriver;
      const taint = isUnrestored ? 'unrestored' : isLostToPod ? 'settings-lost' : undefined;
      const expectedTaints = taint && `${driverName}/${taint}`;
      if (device !== undefined && taints !== expectedTaints) problems.push(`${vf.name} has the taints ${taints}`);
    }
    return problems;
  }

  /** What a claim changes of a VF is no property of the device. */
  #differencesOf({ name, attributes = {} }: Device, vf: SimVf, isHeld: boolean): string[] {
    if (isHeld && vf.wasReset) return [];
    const { driver, link } = isHeld ? this.#node.hardware.foundStateOf(vf) : vf;
    const expected = {
      pciAddress: { string: vf.pciAddress },
      vfIndex: { int: vf.vfIndex },
      driver: { string: driver ?? '' },
      ...(link === undefined ? {} : { mac: { string: link.hardwareAddress }, mtu: { int: link.mtuBytes } }),
    };
    return Object.entries(expected).flatMap(([key, value]) => {
      const offered = JSON.stringify(attributes[key]);
      return offered === JSON.stringify(value)
        ? []
        : [`${name} is offered with ${key} ${offered}, not ${JSON.stringify(value)}`];
    });
  }

  #ofHealth({ health }: Instance): string[] {
    return this.#node.apiServer.offered().flatMap(({ name, taints = [] }) => {
      const expected = taints.length === 0 ? 'healthy' : 'unhealthy';
      const states = health.filter(({ deviceName }) => deviceName === name).map((each) => each.health);
      return states.join() === expected
        ? []
        : [`the health of ${name} is reported as ${states.join(' and ') || 'nothing'}`];
    });
  }

  /** What the node shows is what slices, store and hardware say. */
  #ofView({ store }: Instance): string[] {
    const { apiServer, hardware } = this.#node;
    const view = apiServer.view;
    if (view === undefined) return ['the node shows no devices'];
    const offered = apiServer.offered();
    const ofClaims = store.claims().map(({ identity: { namespace, name }, devices }) => ({
      namespace,
      name,
      devices: devices.map((each) => each.name),
    }));
    const tainted = offered.flatMap(({ name, taints = [] }) => (taints.length === 0 ? [] : name));
    const names = new Set(offered.map(({ name }) => name));
    const hidden = hardware.vfs.flatMap(({ name }) => (names.has(name) ? [] : name));
    const sorted = (list: readonly string[]) => [...new Set(list)].sort().join();
    const facts: [what: string, shown: string, expected: string][] = [
      ['devices', `${view.devices.offered} offered`, `${names.size} offered`],
      ['VFs of PFs', `${view.pfs.reduce((sum, { vfs }) => sum + vfs.offered, 0)}`, `${names.size}`],
      [
        'claims',
        sorted(view.claims.map((each) => JSON.stringify(each))),
        sorted(ofClaims.map((each) => JSON.stringify(each))),
      ],
      ['withheld', sorted(view.withheld.flatMap(({ devices }) => devices)), sorted([...tainted, ...hidden])],
      ['conditions', view.conditions.map(({ status }) => status).join(), 'True,True,True'],
    ];
    return facts.flatMap(([what, shown, expected]) =>
      shown === expected ? [] : [`the node shows as ${what} ${shown}, not ${expected}`],
    );
  }

  #ofStatus({ store }: Instance, isUnchanged: (sandbox: SimSandbox) => boolean): string[] {
    // One without gate and files may run before its claim is served, if the claim has passed to its pod.
    const running = [...this.#node.runtime.containers.values()].filter(
      ({ state, edits: { hooks, mounts } }) => state === 'running' && hooks.length + mounts.length > 0,
    );
    return [...this.#node.apiServer.claims.values()].flatMap((claim) => {
      const entries = this.#node.apiServer.statusOf(claim).filter(({ driver }) => driver === driverName);
      if (store.claim(claim.uid) === undefined) {
        // The removal of an entry does not survive the end of the process: most claims are deallocated soon.
        const isDue = this.#releasedBy.get(claim.uid)?.isAlive === true;
        return isDue
          ? entries.map(({ device }) => `${claim.name} is not prepared, and its status shows ${device}`)
          : [];
      }
      const sandbox = running.find(({ sandbox: { pod } }) => claim.reservedFor.includes(pod.uid))?.sandbox;
      if (sandbox === undefined || store.claim(claim.uid)?.state !== 'prepared') return [];
      return this.#differencesOfStatus(claim, entries, sandbox, isUnchanged(sandbox));
    });
  }

  /** The devices of a running pod. */
  #differencesOfStatus(
    { name, devices }: SimClaim,
    entries: AllocatedDeviceStatus[],
    { network, pod }: SimSandbox,
    isUnchanged: boolean,
  ): string[] {
    const own = devices.filter(({ adminAccess }) => !adminAccess);
    const claims = this.#node.claimsOf(pod);
    const far = farVfs(
      pod.plan.cpus,
      claims.flatMap((each) => this.#node.hardware.allocatedTo(each)),
    );
    const vfOf = (device: string) => this.#node.hardware.vfs.find(({ name }) => name === device);
    return own.flatMap(({ device, request }) => {
      const vf = vfOf(device);
      const found = entries.filter((entry) => entry.device === device);
      const link = isUnchanged ? vf?.link?.used : undefined;
      // A pod may have moved a VF away. All VFs of its request have no metadata then; other requests are reported as they are.
      const isThere = own.every((each) => {
        const place = vfOf(each.device)?.link?.namespace;
        return each.request !== request || place === undefined || place === network;
      });
      const expected = [
        isThere ? 'True' : 'False',
        vf?.pciAddress,
        ...(pod.plan.cpus.length === 0 ? [] : [far.some(({ name }) => name === device) ? 'False' : 'True']),
        ...(link === undefined ? [] : [link.name, link.hardwareAddress, [...link.addresses.keys()].sort().join()]),
      ];
      const shown = found.map(({ conditions = [], data, networkData }) => [
        conditions.find(({ type }) => type === 'Ready')?.status,
        (data as { pciAddress?: string } | undefined)?.pciAddress,
        ...(pod.plan.cpus.length === 0 ? [] : [conditions.find(({ type }) => type === 'NumaAligned')?.status]),
        ...(link === undefined
          ? []
          : [networkData?.interfaceName, networkData?.hardwareAddress, (networkData?.ips ?? []).join()]),
      ]);
      return JSON.stringify(shown) === JSON.stringify([expected])
        ? []
        : [`the status of ${name} says of ${device} ${JSON.stringify(shown)}, not ${JSON.stringify(expected)}`];
    });
  }
}
