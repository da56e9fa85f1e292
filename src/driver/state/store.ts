import { isDeepStrictEqual } from 'node:util';
import { claimName, type DeviceKey, formatDeviceKey } from '../../framework/metadata/index.ts';
import { deepFreeze } from '../../lib/freeze.ts';
import {
  type Attachment,
  StateError,
  type StoredClaim,
  type StoredCondition,
  type StoredDevice,
  type UnrestoredVf,
} from '../model/index.ts';
import { ContentCache } from './content-cache.ts';
import { RecordTable } from './record-table.ts';
import { dataOf, type Row, toClaim, toDevice } from './rows.ts';
import { StoreDatabase, type StoreDatabaseOptions } from './store-database.ts';

export interface StoreOptions extends StoreDatabaseOptions {
  /** ID of the node's current boot, which marks rows. Absent: boots are not distinguished. */
  bootId?: string;
}

/** Read access to the claims of the store. */
export interface StoredClaims {
  claim(uid: string): StoredClaim | undefined;
  claims(): readonly StoredClaim[];
  claimsOfPod(podUid: string): StoredClaim[];
  holderOf(pciAddress: string): StoredClaim | undefined;
}

/**
 * The state that survives a restart: claims with their VFs, and the sandbox of each VF. It is written before the host is
 * changed. Two instances of the driver share it during a rolling update. A device belongs to at most one claim, which the
 * primary key enforces.
 * @throws StateError `store-unusable`: a store that cannot be read is an error and never counts as empty
 */
export class Store implements StoredClaims, Disposable {
  readonly #database: StoreDatabase;
  readonly #content: ContentCache;
  readonly #bootId: string | undefined;
  /** The framework's records of claims. */
  readonly records: RecordTable;

  /** @param path path of the database file, which is created if it is missing, unless `readOnly` */
  constructor(path: string, { bootId, ...options }: StoreOptions = {}) {
    this.#bootId = bootId;
    const database = new StoreDatabase(path, options);
    this.#database = database;
    this.#content = new ContentCache({
      dataVersion: () => database.query('PRAGMA data_version')[0]?.data_version,
      isTransaction: () => database.isTransaction,
      claims: (uid) => (uid === undefined ? this.#claims('') : this.#claims('WHERE uid = ?', uid)),
    });
    this.records = new RecordTable(
      (sql, ...values) => database.query(sql, ...values),
      () => this.#content.read().records,
    );
  }

  /** Path of the database file. */
  get path(): string {
    return this.#database.path;
  }

  /**
   * Whether the tables exist. `false` only with `readOnly`, if the first start of the driver ended before it had created
   * them.
   */
  get hasTables(): boolean {
    return this.#database.hasTables;
  }

  claim(uid: string): StoredClaim | undefined {
    return this.claims().find(({ identity }) => identity.uid === uid);
  }

  /**
   * Returns the claims, frozen, in the order of their names. Every event of every pod needs them, so they are cached: see
   * {@link ContentCache}.
   */
  claims(): readonly StoredClaim[] {
    return this.#content.read().claims;
  }

  /** Returns the claims that were last written in an earlier boot of the node. */
  claimsOfEarlierBoots(): StoredClaim[] {
    const bootId = this.#bootId;
    return bootId === undefined ? [] : this.#claims('WHERE boot_id <> ?', bootId);
  }

  /** Deletes unrestored VFs of earlier boots of the node, since the kernel has created the VFs anew. */
  forgetUnrestoredOfEarlierBoots(): void {
    if (this.#bootId !== undefined) this.#database.query('DELETE FROM unrestored WHERE boot_id <> ?', this.#bootId);
    this.#content.forget('unrestored');
  }

  /** Returns the claims that are prepared for a pod, whatever their state. */
  claimsOfPod(podUid: string): StoredClaim[] {
    return this.claims().filter(({ podUids }) => podUids.includes(podUid));
  }

  /** Returns whether any other pod has a prepared claim with VFs that are in no sandbox yet. */
  isOtherPodExpected(podUid: string): boolean {
    return this.claims().some(({ state, podUids, devices }) => {
      return state === 'prepared' && !podUids.includes(podUid) && devices.some(({ attachment }) => !attachment);
    });
  }

  /** Returns the claim that has the device at a PCI address. */
  holderOf(pciAddress: string): StoredClaim | undefined {
    return this.claims().find(({ devices }) => devices.some((device) => device.pciAddress === pciAddress));
  }

  /**
   * Adds or replaces a claim and its devices. A device that the claim already has keeps its stored attachment, whatever the
   * caller passes: only the sandbox code changes it, perhaps in another instance of the driver.
   * @param unrestored VFs that the claim had before and that could not be restored; they are stored as by `deleteClaim`
   * @throws StateError `device-in-use` if another claim has one of the devices, `device-unrestored` if one of them was not
   * restored after its last claim
   */
  putClaim(claim: StoredClaim, unrestored: readonly UnrestoredVf[] = []): void {
    this.together(() => {
      for (const each of unrestored) this.putUnrestored(each);
      const stored = new Map(this.#devicesOf(claim.identity.uid).map((device) => [formatDeviceKey(device), device]));
      const added = claim.devices.filter((device) => unrestored.length > 0 || !stored.has(formatDeviceKey(device)));
      this.#checkFree(claim, added);
      this.#putClaimRow(claim);
      this.#putDevices(claim, stored);
    });
  }

  /** Changes the state of claims and nothing else. Ignores claims that are not stored. */
  setState(uids: readonly string[], state: StoredClaim['state']): void {
    for (const uid of uids) this.#content.changed(uid);
    const which = 'uid IN (SELECT value FROM json_each(?))';
    const update = `UPDATE claims SET state = ?, boot_id = ? WHERE ${which}`;
    this.#database.query(update, state, this.#bootId ?? null, JSON.stringify(uids));
  }

  /**
   * Stores several changes in one transaction, since a transaction takes longer than the changes in it. Calls can be nested:
   * a nested call that throws is rolled back on its own, and the outer task may go on.
   * @throws the error of the task
   */
  together(task: () => void): void {
    const isNested = this.#database.isTransaction;
    try {
      this.#database.transaction(() => {
        this.#content.begun(isNested);
        task();
      });
    } catch (error) {
      this.#content.undone();
      throw error;
    } finally {
      this.#content.ended(isNested);
    }
  }

  /**
   * Changes the attachments of a claim's devices in one transaction.
   * @param changes new attachments, by `formatDeviceKey`; `undefined` removes an attachment. Devices that the claim no longer
   * has are ignored
   */
  setAttachments(claimUid: string, changes: ReadonlyMap<string, Attachment | undefined>): void {
    if (changes.size === 0) return;
    this.together(() => {
      const devices = this.#devicesOf(claimUid);
      this.#content.changed(claimUid);
      for (const device of devices) {
        const key = formatDeviceKey(device);
        if (changes.has(key)) this.#updateDevice(key, dataOf(device, changes.get(key)));
      }
    });
  }

  /** Returns VFs that are unavailable until they are restored, frozen. They are cached, since each scan needs them. */
  unrestored(): readonly UnrestoredVf[] {
    const known = this.#content.read();
    known.unrestored ??= this.#unrestored();
    return known.unrestored;
  }

  /** Adds an unrestored VF, or updates the reason why it is not restored. */
  putUnrestored({ device, reason }: UnrestoredVf): void {
    const statement = 'INSERT OR REPLACE INTO unrestored (device_key, data, reason, boot_id) VALUES (?, ?, ?, ?)';
    this.#database.query(
      statement,
      formatDeviceKey(device),
      dataOf(device, device.attachment),
      reason,
      this.#bootId ?? null,
    );
    this.#content.forget('unrestored');
  }

  deleteUnrestored(device: DeviceKey): void {
    this.#database.query('DELETE FROM unrestored WHERE device_key = ?', formatDeviceKey(device));
    this.#content.forget('unrestored');
  }

  /** Returns present and past conditions of PCI functions, in the order of their addresses. */
  conditions(): readonly StoredCondition[] {
    const known = this.#content.read();
    known.conditions ??= this.#conditions();
    return known.conditions;
  }

  putCondition({ pciAddress, condition, ...rest }: StoredCondition): void {
    const statement = 'INSERT OR REPLACE INTO conditions (pci_address, condition, data) VALUES (?, ?, ?)';
    this.#database.query(statement, pciAddress, condition, JSON.stringify(rest));
    this.#content.forget('conditions');
  }

  deleteCondition({ pciAddress, condition }: StoredCondition): void {
    this.#database.query('DELETE FROM conditions WHERE pci_address = ? AND condition = ?', pciAddress, condition);
    this.#content.forget('conditions');
  }

  /** Deletes a claim in one transaction, and keeps its devices that could not be restored. */
  deleteClaim(uid: string, unrestored: readonly UnrestoredVf[] = []): void {
    this.together(() => {
      for (const each of unrestored) this.putUnrestored(each);
      this.#content.changed(uid);
      this.#database.query('DELETE FROM claims WHERE uid = ?', uid);
    });
  }

  [Symbol.dispose](): void {
    this.#database[Symbol.dispose]();
  }

  #putClaimRow({ identity: { uid, namespace, name }, podUids, state, allocation }: StoredClaim): void {
    this.#content.changed(uid);
    this.#database.query(
      `INSERT INTO claims (uid, namespace, name, pod_uids, state, boot_id, allocation) VALUES (?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (uid) DO UPDATE SET namespace = excluded.namespace, name = excluded.name, pod_uids = excluded.pod_uids,
         state = excluded.state, boot_id = excluded.boot_id, allocation = excluded.allocation`,
      uid,
      namespace,
      name,
      JSON.stringify(podUids),
      state,
      this.#bootId ?? null,
      allocation,
    );
  }

  /**
   * Writes the devices of a claim. Updates the rows in place if the devices are the same, so that no index changes: a claim
   * is written several times while it is prepared.
   */
  #putDevices({ identity: { uid }, devices }: StoredClaim, stored: ReadonlyMap<string, StoredDevice>): void {
    const isSame = isDeepStrictEqual(devices.map(formatDeviceKey), [...stored.keys()]);
    // The order of a claim's rows is the order of its allocation, so all rows are written again.
    if (!isSame) this.#database.query('DELETE FROM devices WHERE claim_uid = ?', uid);
    for (const given of devices) {
      const key = formatDeviceKey(given);
      const data = dataOf(given, (stored.get(key) ?? given).attachment);
      if (isSame) this.#updateDevice(key, data);
      else {
        const statement = 'INSERT INTO devices (device_key, claim_uid, data) VALUES (?, ?, ?)';
        this.#database.query(statement, key, uid, data);
      }
    }
  }

  #updateDevice(key: string, data: string): void {
    this.#database.query('UPDATE devices SET data = ? WHERE device_key = ?', data, key);
  }

  #checkFree({ identity, devices: all }: StoredClaim, devices: readonly StoredDevice[]): void {
    const claim = claimName(identity);
    for (const { pciAddress, name } of devices) {
      if (all.filter((each) => each.pciAddress === pciAddress).length > 1) {
        const message = `device ${name} (${pciAddress}) cannot be prepared for claim ${claim}: the claim has it allocated twice`;
        const hint = 'a pod gets the device as a whole: request another device in place of the second share';
        throw new StateError('device-in-use', message, { claim, device: name, hint });
      }
      const unrestored = this.unrestored().find(({ device }) => device.pciAddress === pciAddress);
      if (unrestored !== undefined) {
        const message = `device ${name} (${pciAddress}) cannot be prepared for claim ${claim}: restoring it after its last claim failed: ${unrestored.reason}`;
        const hint = 'the driver retries every minute and offers it afterwards; netdra inventory lists it';
        throw new StateError('device-unrestored', message, { claim, device: name, retriable: true, hint });
      }
      const holder = this.holderOf(pciAddress);
      if (holder === undefined || holder.identity.uid === identity.uid) continue;
      const message = `device ${name} (${pciAddress}) cannot be prepared for claim ${claim}: it is prepared for claim ${claimName(holder.identity)}`;
      const hint = 'the device is free again when that claim is unprepared';
      throw new StateError('device-in-use', message, { claim, device: name, retriable: true, hint });
    }
  }

  #unrestored(): readonly UnrestoredVf[] {
    const rows = this.#database.query('SELECT * FROM unrestored ORDER BY device_key');
    return this.#database.guard(() =>
      deepFreeze(rows.map((row) => ({ device: toDevice(row), reason: String(row.reason) }))),
    );
  }

  #conditions(): readonly StoredCondition[] {
    const rows = this.#database.query('SELECT * FROM conditions ORDER BY pci_address, condition');
    const read = ({ pci_address, condition, data }: Row): StoredCondition => {
      return { pciAddress: String(pci_address), condition, ...JSON.parse(String(data)) };
    };
    return this.#database.guard(() => rows.map(read));
  }

  /** Reads claims in one statement for a consistent view, since another instance may be writing. */
  #claims(where: string, ...parameters: string[]): StoredClaim[] {
    const tables = 'claims LEFT JOIN devices ON claim_uid = uid';
    const order = 'ORDER BY namespace, name, devices.rowid';
    const rows = this.#database.query(`SELECT * FROM ${tables} ${where} ${order}`, ...parameters);
    const claims = new Map<string, StoredClaim>();
    this.#database.guard(() => {
      for (const row of rows) {
        const uid = String(row.uid);
        const claim = claims.get(uid) ?? toClaim(row);
        claims.set(uid, claim);
        if (row.device_key !== null) claim.devices.push(toDevice(row));
      }
    });
    return deepFreeze([...claims.values()]);
  }

  #devicesOf(claimUid: string): readonly StoredDevice[] {
    return this.claim(claimUid)?.devices ?? [];
  }
}
