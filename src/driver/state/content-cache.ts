import type { StoredClaim, StoredCondition, UnrestoredVf } from '../model/index.ts';
import type { KnownRecords } from './record-table.ts';

/** Cached content of one version of the database; absent parts must be read again. */
export interface StoreContent {
  dataVersion: unknown;
  claims: readonly StoredClaim[];
  unrestored?: readonly UnrestoredVf[];
  conditions?: readonly StoredCondition[];
  records: KnownRecords;
}

/** The database, as the cache reads it. */
export interface CachedDatabase {
  /** Returns a value that changes with each commit of another connection, and with none of this one. */
  dataVersion(): unknown;
  isTransaction(): boolean;
  /** Returns all claims, or the one with a UID, in the order of their names. */
  claims(uid?: string): StoredClaim[];
}

/**
 * Cache of the store, which another instance of the driver may change at any time. It compares the version of the database
 * once in each run of synchronous code, and once in each transaction, because a transaction locks out other writers. If
 * another instance has written, it reads everything again; after changes of this instance, only the claims that were passed
 * to {@link changed}.
 */
export class ContentCache {
  readonly #database: CachedDatabase;
  /** Cached content; absent if everything must be read again. */
  #known: StoreContent | undefined;
  /** UIDs of claims that this instance has changed since. */
  readonly #changed = new Set<string>();
  /** Whether the version was compared in the open transaction. */
  #isAlone = false;
  /** Whether the present run of synchronous code has compared it. */
  #isChecked = false;

  constructor(database: CachedDatabase) {
    this.#database = database;
  }

  /** Returns the present content. The caller reads and sets absent lists. */
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

  /** Records that a claim was changed, or is about to be. */
  changed(claimUid: string): void {
    this.#changed.add(claimUid);
  }

  forget(list: 'unrestored' | 'conditions'): void {
    delete this.#known?.[list];
  }

  /** Records the beginning of a transaction, for which this instance may have waited while another one wrote. */
  begun(isNested: boolean): void {
    this.#isChecked &&= isNested;
  }

  /** Records that a transaction was undone. */
  undone(): void {
    this.#known = undefined;
  }

  ended(isNested: boolean): void {
    this.#isAlone &&= isNested;
  }
}

/** Resolved promise: callbacks run after the present synchronous code. */
const endOfTurn = Promise.resolve();

function byName({ identity: one }: StoredClaim, { identity: other }: StoredClaim): number {
  const [a, b] = one.namespace === other.namespace ? [one.name, other.name] : [one.namespace, other.namespace];
  return a < b ? -1 : Number(a > b);
}
