import type { StoredClaim, StoredCondition, UnrestoredVf } from '../model/index.ts';
import type { KnownRecords } from './record-table.ts';

/** What was read of a version of the database; what is absent has to be read again. */
export interface StoreContent {
  dataVersion: unknown;
  claims: readonly StoredClaim[];
  unrestored?: readonly UnrestoredVf[];
  conditions?: readonly StoredCondition[];
  records: KnownRecords;
}

/** The database, as the cache reads it. */
export interface CachedDatabase {
  /** Changes with each commit of another connection, and with none of this one. */
  dataVersion(): unknown;
  isTransaction(): boolean;
  /** All claims, or the one with a UID, in the order of their names. */
  claims(uid?: string): StoredClaim[];
}

/**
 * What this process knows of the store, which another instance of the driver may change at any time. The version of the database is
 * compared once in each run of synchronous code, since nothing waits for another instance meanwhile, and once in each transaction,
 * which keeps others from writing. If another instance has written, all is read again; of own changes only the claims that
 * {@link changed} names.
 */
export class ContentCache {
  readonly #database: CachedDatabase;
  /** What was read last; absent if all has to be read again. */
  #known: StoreContent | undefined;
  /** UIDs of claims that this instance has changed since. */
  readonly #changed = new Set<string>();
  /** Whether the version was compared in the open transaction. */
  #isAlone = false;
  /** Whether it was compared by the synchronous code that runs now. */
  #isChecked = false;

  constructor(database: CachedDatabase) {
    this.#database = database;
  }

  /** The content as it is now. Lists that are absent are the caller's to read and to set. */
  read(): StoreContent {
    const isCurrent = this.#isAlone || this.#isChecked;
    const dataVersion = isCurrent ? this.#known?.dataVersion : this.#database.dataVersion();
    this.#isAlone = this.#database.isTransaction();
    if (!this.#isChecked)
      void endOfTurn.then(() => {
        this.#isChecked = false;
      });
    this.#isChecked = true;
    if (this.#known === undefined || this.#known.dataVersion !== dataVersion) {
      this.#known = { dataVersion, claims: this.#database.claims(), records: { texts: new Map(), names: undefined } };
    } else if (this.#changed.size > 0) {
      const others = this.#known.claims.filter(({ identity }) => !this.#changed.has(identity.uid));
      const own = [...this.#changed].flatMap((uid) => this.#database.claims(uid));
      this.#known.claims = own.length === 0 ? others : [...others, ...own].sort(byName);
    }
    this.#changed.clear();
    return this.#known;
  }

  /** A claim is changed, or about to be. */
  changed(claimUid: string): void {
    this.#changed.add(claimUid);
  }

  forget(list: 'unrestored' | 'conditions'): void {
    delete this.#known?.[list];
  }

  /** A transaction has begun, for which this instance may have waited while another one wrote. */
  begun(isNested: boolean): void {
    this.#isChecked &&= isNested;
  }

  /** A transaction was undone. */
  undone(): void {
    this.#known = undefined;
  }

  ended(isNested: boolean): void {
    this.#isAlone &&= isNested;
  }
}

/** What waits for it runs after the synchronous code that runs now. */
const endOfTurn = Promise.resolve();

function byName({ identity: one }: StoredClaim, { identity: other }: StoredClaim): number {
  const [a, b] = one.namespace === other.namespace ? [one.name, other.name] : [one.namespace, other.namespace];
  return a < b ? -1 : Number(a > b);
}
