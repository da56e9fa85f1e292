import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import type { ClaimIdentity, NetworkDeviceData } from '../metadata/index.ts';
import type { VfAccess, VfBefore } from '../sriov/index.ts';
import { DriverError } from './errors.ts';
import { FileChangeWatch } from './file-change-watch.ts';
import { checkReadable, damagedHint, migrate } from './store-schema.ts';
import type { VfConfig } from './vf-config.ts';

/** Where a VF is while it is away from the host's network namespace, and what it was before. */
export interface Attachment {
  podUid: string;
  podNamespace?: string;
  podName?: string;
  sandboxId: string;
  netnsPath: string;
  /** What to give back: what its interface was like in the host's namespace. Absent: it has no interface (DPDK). */
  host?: { name: string; hardwareAddress?: string; mtuBytes: number; up: boolean };
}

/** A VF that is prepared for a claim. */
export interface StoredDevice {
  pciAddress: string;
  /** Of a VF; absent for a plain NIC. */
  pfAddress?: string;
  vfIndex?: number;
  pool: string;
  name: string;
  /** Full reference of the request. */
  request: string;
  config: VfConfig;
  /** What the VF was before its claim changed it from outside; absent if it did not. */
  before?: VfBefore;
  /** What its containers reach it by; absent until it is prepared. */
  access?: VfAccess;
  attachment?: Attachment;
  networkData?: NetworkDeviceData;
}

export interface StoredClaim {
  identity: ClaimIdentity;
  podUids: string[];
  /** `preparing` and `unpreparing` are intents: the host may be in any state between before and after. */
  state: 'preparing' | 'prepared' | 'unpreparing';
  devices: StoredDevice[];
}

export interface StoreOptions {
  /** Of the node now: what is written is marked with it. Absent: the boots of the node are not told apart. */
  bootId?: string;
  /** For tools beside the driver: nothing is made, brought up to date or changed, and no writer is kept waiting. */
  readOnly?: boolean;
}

/** What SQLite says of a file that is none of its own, or was damaged. Source: sqlite.org/rescode.html. */
const damageCodes = [11, 26];
/** Even if nobody says that something changed. */
const podUidsMaxAgeMs = 10_000;

/**
 * What the driver must know after a restart: claims with their VFs, and where each VF is. Written before the host is
 * touched. SQLite in WAL mode, since two instances of the driver share it during a rolling update; one device belongs to
 * at most one claim, which the primary key enforces.
 * @throws DriverError `store-unusable`: a store that cannot be read is an error, never "empty"
 */
export class Store implements Disposable {
  readonly #database: DatabaseSync;
  readonly #path: string;
  readonly #bootId: string | undefined;
  readonly #isReadOnly: boolean;
  readonly #statements = new Map<string, StatementSync>();
  /** UIDs of the pods that have claims, and of some that had; absent when that is to be read again. */
  #podUids: Set<string> | undefined;
  #podUidsReadAtMs = 0;
  /** What SQLite says to whether others have written. */
  #dataVersion: unknown;
  #watch: FileChangeWatch | undefined;

  /** @param path of the database file; it and its directory are made if missing, unless `readOnly` */
  constructor(path: string, { bootId, readOnly = false }: StoreOptions = {}) {
    this.#path = path;
    this.#bootId = bootId;
    this.#isReadOnly = readOnly;
    this.#database = this.#guard(() => {
      if (readOnly) return openToRead(path);
      mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      return openDatabase(path, bootId);
    });
  }

  claim(uid: string): StoredClaim | undefined {
    return this.#claims('WHERE uid = ?', uid)[0];
  }

  claims(): StoredClaim[] {
    return this.#claims('');
  }

  /** The claims that were written last in another boot of the node. */
  claimsOfEarlierBoots(): StoredClaim[] {
    return this.#bootId === undefined ? [] : this.#claims('WHERE boot_id <> ?', this.#bootId);
  }

  /** The claims that are prepared for a pod, whatever their state. Free of charge for one that has none. */
  claimsOfPod(podUid: string): StoredClaim[] {
    if (!this.#hasClaims(podUid)) return [];
    return this.#claims('WHERE EXISTS (SELECT 1 FROM json_each(pod_uids) WHERE value = ?)', podUid);
  }

  /** The claim that holds a device. */
  holderOf(pciAddress: string): StoredClaim | undefined {
    return this.#claims('WHERE uid = (SELECT claim_uid FROM devices WHERE pci_address = ?)', pciAddress)[0];
  }

  /**
   * Adds or replaces a claim and its devices. What is known of a device that stays (where it is, its network data) is
   * part of what the caller passes.
   * @throws DriverError `device-in-use` if another claim holds one of the devices: looked at and written in one step
   */
  putClaim(claim: StoredClaim): void {
    this.#guard(() =>
      this.#transaction(() => {
        const { uid, namespace, name } = claim.identity;
        this.#checkFree(claim);
        for (const podUid of claim.podUids) this.#podUids?.add(podUid);
        this.#run('DELETE FROM claims WHERE uid = ?', uid);
        this.#run(
          'INSERT INTO claims (uid, namespace, name, pod_uids, state, boot_id) VALUES (?, ?, ?, ?, ?, ?)',
          ...[uid, namespace, name, JSON.stringify(claim.podUids), claim.state, this.#bootId ?? null],
        );
        for (const device of claim.devices) {
          const { pciAddress, ...rest } = device;
          this.#run(
            'INSERT INTO devices (pci_address, claim_uid, data) VALUES (?, ?, ?)',
            pciAddress,
            uid,
            JSON.stringify(rest),
          );
        }
      }),
    );
  }

  /** Replaces what is stored of one device of a claim. */
  putDevice(device: StoredDevice): void {
    this.#guard(() => this.#updateDevice(device));
  }

  /** The same for several, in one step. */
  putDevices(devices: readonly StoredDevice[]): void {
    if (devices.length === 0) return;
    this.#guard(() =>
      this.#transaction(() => {
        for (const device of devices) this.#updateDevice(device);
      }),
    );
  }

  /**
   * Changes what is stored of the devices of a claim, all in one step, as they are at this moment: another instance of the
   * driver may have changed them.
   * @param change gives `undefined` if there is nothing to change
   */
  changeDevices(claimUid: string, change: (device: StoredDevice) => StoredDevice | undefined): void {
    this.#guard(() =>
      this.#transaction(() => {
        for (const current of this.#devices(claimUid)) {
          const next = change(current);
          if (next !== undefined) this.#updateDevice(next);
        }
      }),
    );
  }

  deleteClaim(uid: string): void {
    this.#guard(() => this.#run('DELETE FROM claims WHERE uid = ?', uid));
  }

  [Symbol.dispose](): void {
    this.#watch?.[Symbol.dispose]();
    if (this.#database.isOpen) this.#database.close();
  }

  /** Most pods of a node have no claims of ours, and each of them waits for the answer. */
  #hasClaims(podUid: string): boolean {
    const nowMs = performance.now();
    // The instance beside us in a rolling update writes, too.
    this.#watch ??= new FileChangeWatch(`${this.#path}-wal`);
    const isOld = nowMs - this.#podUidsReadAtMs > podUidsMaxAgeMs;
    if ((this.#watch.takeChange() && this.#isChangedByOthers()) || isOld || this.#podUids === undefined) {
      this.#podUids = this.#guard(() => {
        const rows = this.#prepare('SELECT value FROM claims, json_each(pod_uids)').all();
        return new Set(rows.map(({ value }) => String(value)));
      });
      this.#podUidsReadAtMs = nowMs;
    }
    return this.#podUids.has(podUid);
  }

  #isChangedByOthers(): boolean {
    return this.#guard(() => {
      const before = this.#dataVersion;
      this.#dataVersion = this.#prepare('PRAGMA data_version').get()?.data_version;
      return this.#dataVersion !== before;
    });
  }

  #checkFree({ identity, devices }: StoredClaim): void {
    const claim = `${identity.namespace}/${identity.name}`;
    for (const { pciAddress, name } of devices) {
      const holder = this.holderOf(pciAddress)?.identity;
      if (holder === undefined || holder.uid === identity.uid) continue;
      const message = `device ${name} (${pciAddress}) cannot be prepared for claim ${claim}: it is prepared for claim ${holder.namespace}/${holder.name}`;
      const hint = 'it is free again when that claim is unprepared';
      throw new DriverError('device-in-use', message, { claim, device: name, retriable: true, hint });
    }
  }

  /** In one statement, which sees one moment: another instance may be writing. */
  #claims(where: string, ...parameters: string[]): StoredClaim[] {
    return this.#guard(() => {
      const tables = 'claims LEFT JOIN devices ON claim_uid = uid';
      const order = 'ORDER BY namespace, name, devices.rowid';
      const rows = this.#prepare(`SELECT * FROM ${tables} ${where} ${order}`).all(...parameters);
      const claims = new Map<string, StoredClaim>();
      for (const row of rows) {
        const uid = String(row.uid);
        const claim = claims.get(uid) ?? toClaim(row);
        claims.set(uid, claim);
        if (row.pci_address !== null) claim.devices.push(toDevice(row));
      }
      return [...claims.values()];
    });
  }

  #devices(claimUid: string): StoredDevice[] {
    const rows = this.#prepare('SELECT * FROM devices WHERE claim_uid = ? ORDER BY rowid').all(claimUid);
    return rows.map(toDevice);
  }

  #updateDevice({ pciAddress, ...rest }: StoredDevice): void {
    this.#run('UPDATE devices SET data = ? WHERE pci_address = ?', JSON.stringify(rest), pciAddress);
  }

  #run(statement: string, ...parameters: (string | null)[]): void {
    this.#prepare(statement).run(...parameters);
  }

  /** There are a handful of them. */
  #prepare(sql: string): StatementSync {
    const known = this.#statements.get(sql) ?? this.#database.prepare(sql);
    this.#statements.set(sql, known);
    return known;
  }

  #transaction(task: () => void): void {
    this.#database.exec('BEGIN IMMEDIATE');
    try {
      task();
      this.#database.exec('COMMIT');
    } catch (error) {
      // A full disk ends the transaction by itself.
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK');
      throw error;
    }
  }

  #guard<T>(task: () => T): T {
    try {
      return task();
    } catch (cause) {
      if (cause instanceof DriverError) throw cause;
      throw new DriverError('store-unusable', `state store ${this.#path} cannot be used`, {
        cause,
        path: this.#path,
        retriable: !isDamage(cause),
        hint: this.#hintFor(cause),
      });
    }
  }

  #hintFor(cause: unknown): string {
    if (this.#isReadOnly) return 'run this as root, in the same version as the driver';
    return isDamage(cause) ? damagedHint : 'check space and permissions of its directory; without it nothing is done';
  }
}

type Row = Record<string, unknown>;

function toClaim({ uid, namespace, name, pod_uids, state }: Row): StoredClaim {
  return {
    identity: { uid: String(uid), namespace: String(namespace), name: String(name) },
    podUids: JSON.parse(String(pod_uids)),
    state: state as StoredClaim['state'],
    devices: [],
  };
}

function toDevice({ pci_address, data }: Row): StoredDevice {
  return { pciAddress: String(pci_address), ...JSON.parse(String(data)) };
}

/** Whether the file is at fault: SQLite's own word for it, or content that this driver cannot have written. */
function isDamage(error: unknown): boolean {
  if (error instanceof SyntaxError) return true;
  return error instanceof Error && 'errcode' in error && damageCodes.includes(Number(error.errcode) & 0xff);
}

function openToRead(path: string): DatabaseSync {
  const database = new DatabaseSync(path, { readOnly: true, timeout: 5_000 });
  try {
    checkReadable(database, path);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function openDatabase(path: string, bootId: string | undefined): DatabaseSync {
  const database = new DatabaseSync(path, { timeout: 5_000, enableForeignKeyConstraints: true });
  try {
    // Not synced at each write: what a process has written outlives it anyway, and with the power goes all of the kernel's
    // state that the store is about. docs/decisions/0012-no-sync-at-each-write.md
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;');
    migrate(database, path);
    if (bootId !== undefined) database.prepare('UPDATE claims SET boot_id = ? WHERE boot_id IS NULL').run(bootId);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}
