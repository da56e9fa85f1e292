import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodeStream, type MetadataDocument } from '../../src/framework/metadata/index.ts';
import type { SimClaim } from './api-server.ts';
import type { SimVf } from './hardware.ts';
import { directoriesOf, periodicSleepsMs } from './instance.ts';
import type { Namespace, SimLink } from './kernel.ts';
import { Reports } from './reports.ts';
import type { SimContainer, SimSandbox } from './runtime.ts';
import type { Process } from './simulator.ts';
import type { Node, SimPod } from './world.ts';

/** A state that must never occur. */
export class Violation extends Error {
  readonly rule: string;

  constructor(rule: string, message: string) {
    super(`${rule}: ${message}`);
    this.rule = rule;
  }
}

/** How long the driver may continue to work on a sandbox that is gone. */
const goneMs = 40_000;

/** Conditions that must hold in every schedule. */
export class Checks {
  readonly #node: Node;
  /** Names of the claims that a VF was ever allocated to, by PCI address, with their pods. */
  readonly #pods = new Map<string, Set<string>>();
  readonly #generations = new Map<string, { generation: number; text: string }>();
  /** Ids of sandboxes whose pod has changed its own interface. */
  readonly #changed = new Set<string>();
  /** Time of the driver's first failure in a sandbox that the runtime no longer has. */
  readonly #goneSince = new Map<string, number>();
  /** PCI addresses of VFs that were moved out of the host's namespace for a claim. */
  readonly #away = new Set<string>();
  readonly reports: Reports;
  #filesChanged = false;
  #isPlaceChanged = false;
  #violation: Violation | undefined;
  #resets = 0;

  constructor(node: Node) {
    this.#node = node;
    this.reports = new Reports(node);
    node.kernel.observers.push({
      moved: (link, from, to, by) => this.#moved(link, from, to, by),
      removed: (link, by) => this.#leaves(link, by),
    });
  }

  filesChanged(): void {
    this.#filesChanged = true;
  }

  storeChanged(): void {
    this.#isPlaceChanged = true;
  }

  /** The driver works on a sandbox that the runtime no longer has. */
  failedIn(sandboxId: string): void {
    const { nowMs } = this.#node.simulator;
    const sandbox = this.#node.runtime.sandboxes.get(sandboxId);
    if (sandbox !== undefined && (sandbox.state !== 'failed' || sandbox.isListed)) return;
    const since = this.#goneSince.get(sandboxId) ?? nowMs;
    this.#goneSince.set(sandboxId, since);
    if (nowMs - since < goneMs) return;
    this.#violation ??= new Violation(
      'endless',
      `the driver still works on ${sandboxId}, which is gone since ${since} ms`,
    );
  }

  podChanges({ id }: SimSandbox): void {
    this.#changed.add(id);
  }

  cardReset(): void {
    this.#resets += 1;
    for (const { id } of this.#node.runtime.sandboxes.values()) this.#changed.add(id);
  }

  booted(): void {
    for (const vf of this.#node.hardware.vfs) vf.wasReset = true;
  }

  bound(pod: SimPod): void {
    for (const { devices } of this.#node.claimsOf(pod)) {
      for (const { device, adminAccess } of devices) {
        if (adminAccess) continue;
        const known = this.#pods.get(device) ?? new Set();
        this.#pods.set(device, known.add(pod.uid));
      }
    }
  }

  /** @throws Violation */
  afterStep(): void {
    if (this.#filesChanged) {
      this.#filesChanged = false;
      for (const claim of this.#node.apiServer.claims.values()) this.#checkGenerations(claim);
    }
    if (this.#isPlaceChanged) {
      this.#isPlaceChanged = false;
      this.#checkPlaces();
    }
    if (this.#violation !== undefined) throw this.#violation;
  }

  containerRuns(container: SimContainer): void {
    try {
      this.#checkContainer(container);
    } catch (error) {
      this.#violation ??= error as Violation;
    }
  }

  /** A pod with restartPolicy Never has ended: the reason must not be a missing VF or a timeout. */
  podFailed(pod: SimPod, { startError }: SimContainer): void {
    if (
      startError === undefined ||
      pod.isDeleted ||
      !/in time|mount source|not prepared|does not stop/.test(startError)
    )
      return;
    this.#violation ??= new Violation('pod-failed', `${pod.uid} has failed for good: ${startError}`);
  }

  /** Pods that should run but do not. */
  waiting(): string[] {
    const { pods, runtime } = this.#node;
    const running = new Set(
      [...runtime.containers.values()].filter(({ state }) => state === 'running').map(({ sandbox }) => sandbox.pod),
    );
    // A pod without a free VF waits for another to end, and one whose VF was reset with the card has to be deleted.
    const due = pods.filter((pod) => pod.isBound && !pod.isDeleted && !pod.isFailed && this.#resets === 0);
    return due.filter((pod) => !running.has(pod)).map(({ uid }) => `${uid} does not run`);
  }

  /** What slices, status, health and readiness say, and the node does not. */
  disagreements(): string[] {
    // A pod whose VF was reset with the card has to be deleted.
    return this.reports.disagreements(this.#resets === 0 ? ({ id }) => !this.#changed.has(id) : undefined);
  }

  /** All differences of the node from its state before the first pod. */
  remaining(): string[] {
    const { pods, hardware, cni, kernel, runtime, kubelet } = this.#node;
    const { dataDir, cdiDir } = directoriesOf(this.#node.directories);
    const remaining: string[] = [];
    const instance = this.#node.registered();
    for (const pod of pods) if (!pod.isDone) remaining.push(`${pod.uid} has not ended`);
    if (!kubelet.isIdle) remaining.push('the kubelet is not done');
    for (const vf of hardware.vfs) {
      remaining.push(...hardware.changesOf(vf).map((change) => `${vf.name}: ${change}`));
    }
    if (instance === undefined) remaining.push('the driver does not run');
    else {
      for (const { identity, state } of instance.store.claims())
        remaining.push(`${identity.name} is stored as ${state}`);
      remaining.push(...this.#unexpectedWork(instance.process));
      remaining.push(...instance.store.records.names().map((name) => `record ${name}`));
      for (const { device, reason } of instance.store.unrestored()) {
        remaining.push(`${device.name} is stored as not restored: ${reason}`);
      }
    }
    for (const dir of [join(dataDir, 'dra-device-metadata'), cdiDir]) {
      if (existsSync(dir)) remaining.push(...readdirSync(dir).map((file) => `file ${file}`));
    }
    for (const address of cni.addresses) remaining.push(`address ${address} was not released`);
    if (cni.entries.size > 0) remaining.push(`${cni.entries.size} CNI attachments`);
    const strangers = kernel.host.links.filter(({ name, parentDevice }) => name !== 'lo' && parentDevice === undefined);
    remaining.push(...strangers.map(({ name }) => `link ${name}`));
    remaining.push(...this.disagreements());
    for (const sandbox of runtime.list()) remaining.push(`sandbox ${sandbox.id}`);
    return remaining;
  }

  /** The location of a VF is stored before it leaves the host, and until it is back. */
  #checkPlaces(): void {
    const { hardware, instances } = this.#node;
    const store = instances.find(({ process }) => process.isAlive)?.store;
    if (store === undefined) {
      this.#isPlaceChanged = this.#away.size > 0;
      return;
    }
    for (const pciAddress of this.#away) {
      const { namespace } = hardware.find(pciAddress)?.link ?? {};
      if (namespace === undefined || namespace.isHost) continue;
      const held = store.holderOf(pciAddress)?.devices.find((device) => device.pciAddress === pciAddress);
      const device = held ?? store.unrestored().find((each) => each.device.pciAddress === pciAddress)?.device;
      if (device?.attachment !== undefined) continue;
      this.#violation ??= new Violation('not-stored', `${pciAddress} is in ${namespace.owner}, and that is not stored`);
    }
  }

  /** Pending work that is not periodic. */
  #unexpectedWork(process: Process): string[] {
    const work = this.#node.simulator.pending(process);
    // Each of them once: other work may sleep for the same time.
    for (const ms of periodicSleepsMs) {
      const at = work.indexOf(`sleep ${ms}`);
      if (at !== -1) work.splice(at, 1);
    }
    return work.map((name) => `the driver still waits for: ${name}`);
  }

  #checkContainer(container: SimContainer): void {
    const { sandbox } = container;
    const { pod } = sandbox;
    if (this.#resets > 0) return;
    for (const name of pod.claims) {
      const claim = this.#node.apiServer.claims.get(name);
      // After a pod was force-deleted, its claim may have other devices, for the next pod.
      if (claim?.reservedFor.includes(pod.uid) !== true) continue;
      for (const { device, request, adminAccess } of claim.devices) {
        const where = `${container.id} of ${sandbox.id} runs with ${device} of ${claim.name}`;
        const document = this.#readDocument(claim, request);
        if (document === undefined) throw new Violation('no-metadata', `${where} and no metadata`);
        if (document.generation < 1) throw new Violation('no-metadata', `${where}, generation ${document.generation}`);
        const vf = this.#node.hardware.vfs.find((each) => each.name === device);
        if (adminAccess || vf === undefined) continue;
        this.#checkPlace(where, sandbox, vf);
        this.#checkDocument(where, sandbox, vf, document);
      }
    }
  }

  #checkPlace(where: string, { id, network }: SimSandbox, vf: SimVf): void {
    const stored = this.#node.registered()?.store.holderOf(vf.pciAddress);
    const attachment = stored?.devices.find(({ pciAddress }) => pciAddress === vf.pciAddress)?.attachment;
    if (stored !== undefined && attachment?.sandboxId !== id) {
      throw new Violation('not-attached', `${where}, which is stored in ${attachment?.sandboxId ?? 'no sandbox'}`);
    }
    if (vf.link === undefined || vf.link.namespace === network) return;
    const place = vf.link.namespace.isHost ? 'on the host' : `in ${vf.link.namespace.owner}`;
    throw new Violation('not-attached', `${where}, which is ${place}`);
  }

  /** The file's content matches the kernel's state. */
  #checkDocument(where: string, sandbox: SimSandbox, vf: SimVf, document: MetadataDocument): void {
    const data = document.devices.find(({ name }) => name === vf.name)?.networkData;
    const { link } = vf;
    if (link === undefined) {
      const leases = this.#node.cni.entries.values();
      const known = [...leases].flatMap(({ address, cached }) =>
        address !== undefined && cached.attachment.containerId === sandbox.id ? [address] : [],
      );
      const unknown = (data?.ips ?? []).filter((address) => address.startsWith('10.9.') && !known.includes(address));
      if (unknown.length > 0)
        throw new Violation('wrong-metadata', `${where}, which names ${unknown}, assigned to no sandbox`);
      return;
    }
    if (this.#changed.has(sandbox.id)) return;
    const actual = {
      interfaceName: link.name,
      hardwareAddress: link.hardwareAddress,
      ips: [...link.addresses.keys()].sort().join(),
    };
    const written = {
      interfaceName: data?.interfaceName,
      hardwareAddress: data?.hardwareAddress,
      ips: (data?.ips ?? []).join(),
    };
    if (JSON.stringify(actual) === JSON.stringify(written)) return;
    throw new Violation(
      'wrong-metadata',
      `${where}: ${JSON.stringify(written)} in the file, ${JSON.stringify(actual)} in the kernel`,
    );
  }

  /** While the claim's files exist: they are recreated after unprepare. */
  #checkGenerations(claim: SimClaim): void {
    if (!existsSync(this.#claimDir(claim))) {
      for (const key of this.#generations.keys()) if (key.startsWith(`${claim.uid} `)) this.#generations.delete(key);
      return;
    }
    for (const { request } of claim.devices) {
      const key = `${claim.uid} ${request}`;
      const before = this.#generations.get(key) ?? { generation: 0, text: '' };
      const text = this.#readFile(claim, request) ?? '';
      if (text === before.text) continue;
      const document = toDocument(text);
      if (document === undefined || document.claim.uid !== claim.uid) continue;
      const { generation } = document;
      if (generation < before.generation) {
        this.#violation ??= new Violation('generation', `${key} goes from ${before.generation} to ${generation}`);
      }
      this.#generations.set(key, { generation, text });
    }
  }

  #claimDir({ name }: SimClaim): string {
    return join(directoriesOf(this.#node.directories).dataDir, 'dra-device-metadata', `default_${name}`);
  }

  #readDocument(claim: SimClaim, request: string): MetadataDocument | undefined {
    const text = this.#readFile(claim, request);
    return text === undefined ? undefined : toDocument(text);
  }

  #readFile(claim: SimClaim, request: string): string | undefined {
    const path = join(this.#claimDir(claim), request, 'metadata.json');
    return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
  }

  #moved(link: SimLink, from: Namespace, to: Namespace, by: string | undefined): void {
    this.#node.simulator.trace(
      'kernel',
      () =>
        `${link.parentDevice ?? link.name} goes from ${from.owner ?? 'host'} to ${to.owner ?? 'host'} as ${link.name}`,
    );
    if (!from.isHost) this.#leaves(link, by, from);
    this.#isPlaceChanged = true;
    if (link.parentDevice !== undefined) {
      // Multus tracks the place of a VF that it has moved.
      if (to.isHost || by === 'Multus') this.#away.delete(link.parentDevice);
      else this.#away.add(link.parentDevice);
    }
    if (to.isHost) return;
    const sandbox = [...this.#node.runtime.sandboxes.values()].find(({ network }) => network === to);
    const vf = this.#node.hardware.vfs.find(({ pciAddress }) => pciAddress === link.parentDevice);
    if (sandbox === undefined || vf === undefined) return;
    if (this.#pods.get(vf.name)?.has(sandbox.pod.uid) === true) return;
    this.#violation ??= new Violation('wrong-pod', `${vf.name} goes to ${to.owner}, which has no claim of it`);
  }

  /** A VF must not be taken from a running container. */
  #leaves(link: SimLink, by: string | undefined, from: Namespace = link.namespace): void {
    if (by === undefined || from.isHost) return;
    const sandbox = [...this.#node.runtime.sandboxes.values()].find(({ network }) => network === from);
    if (sandbox === undefined) return;
    const isRunning = this.#node.runtime.containersOf(sandbox).some(({ state }) => state === 'running');
    if (!isRunning) return;
    this.#violation ??= new Violation(
      'taken-away',
      `${by} takes ${link.parentDevice} from the running pod in ${sandbox.id}`,
    );
  }
}

/** A blank file has no content. */
function toDocument(text: string): MetadataDocument | undefined {
  return text.trim() === '' ? undefined : decodeStream(text);
}
