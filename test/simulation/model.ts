import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { StoredClaim } from '../../src/driver/model/index.ts';
import {
  type ClaimState,
  contentOf,
  hasGate,
  parseClaimState,
  requestOf,
} from '../../src/framework/metadata/files/claim-state.ts';
import { hostPath } from '../../src/framework/metadata/files/host-file.ts';
import { parseGate } from '../../src/framework/metadata/gate/gate.ts';
import { layouts } from '../../src/framework/metadata/index.ts';
import { placeOf } from '../../src/framework/metadata/layouts/layout.ts';
import { driverName } from './api-server.ts';
import type { SimVf } from './hardware.ts';
import { directoriesOf, type Instance, settingsDirs } from './instance.ts';
import type { Node } from './world.ts';

/**
 * What the host must have of claims, as it follows from the cluster and from the driver's store: files, CNI attachments, and
 * VFs that are free. It says nothing of how the driver gets there.
 */
export class HostModel {
  readonly #node: Node;
  /** By UID of the claim: PCI addresses of its VFs. */
  readonly #held = new Map<string, string[]>();
  readonly #onViolation: (rule: string, message: string) => void;

  constructor(node: Node, onViolation: (rule: string, message: string) => void) {
    this.#node = node;
    this.#onViolation = onViolation;
  }

  claimStored({ identity: { uid }, devices, podUids }: StoredClaim): void {
    // Also of several that a claim is reserved for: what is prepared for two is taken from one for the other.
    if (devices.length > 0 && podUids.length > 1)
      this.#onViolation('two-pods', `${uid} has VFs, and is prepared for ${podUids.join(' and ')}`);
    const before = this.#held.get(uid) ?? [];
    const now = devices.map(({ pciAddress }) => pciAddress);
    this.#held.set(uid, now);
    for (const each of before) if (!now.includes(each)) this.freed(each, uid);
  }

  claimDeleted(uid: string): void {
    for (const each of this.#held.get(uid) ?? []) this.freed(each, uid);
    this.#held.delete(uid);
  }

  /** A VF that no claim has is on the host in its original state, unless the store says that it is not restored. */
  freed(pciAddress: string, by: string): void {
    const { hardware, instances } = this.#node;
    const store = instances.findLast(({ process }) => process.isAlive)?.store;
    const vf = hardware.find(pciAddress);
    const changes = vf === undefined || store === undefined ? [] : this.#changesOfFree(vf, store);
    if (changes.length > 0)
      this.#onViolation('not-restored', `${vf?.name} is free after ${by}, and ${changes.join(', ')}`);
  }

  /** None if a claim has the VF, or it is known not to be restored. */
  #changesOfFree(vf: SimVf, store: Instance['store']): string[] {
    const { pciAddress } = vf;
    // After a reset its interface may appear late.
    if (vf.link === undefined && vf.wasReset) return [];
    const isFree = store.holderOf(pciAddress) === undefined;
    const isKnown = store.unrestored().some(({ device }) => device.pciAddress === pciAddress);
    return isFree && !isKnown ? this.#node.hardware.changesOf(vf) : [];
  }

  /** In calm: what is not as it has to be. */
  *differences(instance: Instance): Generator<string> {
    yield* this.#ofClaims(instance);
    yield* this.#ofRecords(instance);
    const { cni, runtime, hardware } = this.#node;
    // One that is away from the host is not offered.
    const atHome = hardware.vfs.filter(({ link }) => link?.namespace.isHost !== false);
    for (const vf of atHome) {
      const changes = this.#changesOfFree(vf, instance.store);
      if (changes.length > 0) yield `${vf.name} is free, and ${changes.join(', ')}`;
    }
    for (const { cached } of cni.entries.values()) {
      const { containerId, ifName } = cached.attachment;
      if (!runtime.sandboxes.has(containerId)) yield `CNI attachment ${ifName} of ${containerId}, which is gone`;
    }
  }

  /** All files that the driver has written, without those of containers that wait. */
  files(): string[] {
    const { dataDir, cdiDir } = directoriesOf(this.#node.directories);
    const { deviceInfoDir } = settingsDirs(this.#node.directories);
    return [dataDir, cdiDir, deviceInfoDir].flatMap(filesIn);
  }

  /** What the driver holds for a claim that is gone, or is another one of its name, it gives up. */
  *#ofClaims({ store }: Instance): Generator<string> {
    for (const { identity } of store.claims()) {
      const claim = this.#node.apiServer.claims.get(identity.name);
      if (claim?.uid !== identity.uid) yield `${identity.uid} is stored, and the cluster has no such claim`;
      else if (claim.devices.length === 0) yield `${identity.uid} is stored, and not allocated`;
    }
  }

  /** Each claim that is prepared has a record, from which its files and its gate follow; there are no others. */
  *#ofRecords({ store }: Instance): Generator<string> {
    const { dataDir } = directoriesOf(this.#node.directories);
    const expected = new Set<string>();
    const uids: string[] = [];
    for (const dir of store.records.names()) {
      const state = parseClaimState(store.records.read(dir) ?? '', dir, dir);
      const { uid } = state.claim;
      uids.push(uid);
      if (store.claim(uid) === undefined) yield `record of ${uid}, which is not stored`;
      for (const [path, problem] of this.#wanted(state)) {
        expected.add(path);
        if (problem !== undefined) yield `${path} ${problem}`;
      }
      expected.add(join(dataDir, 'dra-device-metadata', dir, 'gate'));
    }
    for (const { identity, state } of store.claims()) {
      uids.push(identity.uid);
      const isRecorded = state !== 'prepared' || uids.includes(identity.uid);
      if (!isRecorded) yield `${identity.uid} is prepared without a record`;
    }
    yield* this.#ofSpecs(store);
    const isOurs = (path: string) =>
      expected.has(path) || uids.some((uid) => path.includes(`_${uid}_`)) || /\/(\.[^/]*|waiting\.[^/]*)$/.test(path);
    for (const path of this.files()) if (!isOurs(path)) yield `file ${path} of no claim`;
  }

  /** A claim that is prepared has CDI specs of its own devices only: containers would get those of others. */
  *#ofSpecs(store: Instance['store']): Generator<string> {
    const { cdiDir } = directoriesOf(this.#node.directories);
    const specs = filesIn(cdiDir);
    for (const { identity, state, devices } of store.claims()) {
      const prefix = join(cdiDir, `${driverName}_device_${identity.uid}_`);
      const own = new Set(devices.map(({ name }) => `${prefix}${name}.json`));
      const strange = specs.find((path) => state === 'prepared' && path.startsWith(prefix) && !own.has(path));
      if (strange !== undefined) yield `file ${strange} of a device that ${identity.uid} does not have`;
    }
  }

  /** The files of a claim, and what is wrong with each. */
  *#wanted(state: ClaimState): Generator<[path: string, problem: string | undefined]> {
    const { dataDir, cdiDir } = directoriesOf(this.#node.directories);
    const dirs = { dataDir, ...settingsDirs(this.#node.directories) };
    // What is laid down for a claim that cannot be served is made again at the next start only.
    const isRepaired = !this.#node.checks.wasDamaged(state.claim.name) || typeof state.servedBy === 'string';
    for (const base of Object.keys(state.requests)) {
      const content = contentOf(state, base, driverName);
      const { isGated } = requestOf(state, base);
      const place = placeOf(content);
      const places = [place, ...(state.otherPodUids ?? []).map((podUid) => ({ ...place, podUid }))];
      for (const name of state.layouts) {
        const wanted = layouts[name].encode(content) ?? (isGated === true ? '' : undefined);
        for (const path of new Set(places.map((each) => hostPath(layouts[name].hostFile(dirs, each))))) {
          const isRight = readIfThere(path)?.trimEnd() === wanted?.trimEnd();
          yield [path, isRight || !isRepaired ? undefined : 'is not what the record says'];
        }
      }
      // Without metadata a spec has the hook of the gate, or there is none.
      if (state.layouts.length === 0 && isGated !== true) continue;
      const spec = join(cdiDir, `${driverName}_metadata_${state.claim.uid}_${base}.json`);
      // With nothing but a hook, a spec that something has removed stays away until the claim is prepared with the gate again.
      const isKept = state.layouts.length > 0 || this.#node.plan.settings.every(({ gate }) => gate === 'hook');
      yield [spec, existsSync(spec) || !isKept ? undefined : 'does not exist'];
    }
    if (!hasGate(state)) return;
    const path = join(dataDir, 'dra-device-metadata', `default_${state.claim.name}`, 'gate');
    const gate = parseGate(readIfThere(path) ?? '');
    const openFor = gate?.state === 'served' ? gate.sandboxId : null;
    const isRight = openFor === (state.servedBy ?? null);
    yield [path, isRight ? undefined : `is open for ${openFor}, and the record says ${state.servedBy}`];
  }
}

function filesIn(dir: string): string[] {
  if (!existsSync(dir)) return [];
  return readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name);
    return entry.isDirectory() ? filesIn(path) : [path];
  });
}

function readIfThere(path: string): string | undefined {
  return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
}
