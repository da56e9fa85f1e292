import type { StoredClaim, StoredCondition, UnrestoredVf } from '../model/index.ts';
import type { KnownRecords } from './record-table.ts';

/** Cached content of one version of the database. Absent lists must be read again. */
export interface StoreContent {
  dataVersion: unknown;
  claims: readonly StoredClaim[];
  unrestored?: readonly UnrestoredVf[];
  conditions?: readonly StoredCondition[];
  records: KnownRecords;
}

/** Part of the database that the cache reads. */
export interface CachedDatabase {
  /** Returns a value that changes with each commit of another connection, but not with commits of this one. */
  dataVersion(): unknown;
  isTransaction(): boolean;
  /** Returns all claims, or the claim with a UID, in the order of their names. */
  claims(uid?: string): StoredClaim[];
}

/**
 * Cache of the store, which another instance of the driver may change at any time. It compares the version of the database
 * once in each run of synchronous code, and once in each transaction, because a transaction locks out other writers. If
 * another instance has written, the cache reads everything again; after changes of this instance, it reads only the claims
 * that were passed to {@link changed}.
 */
export class ContentCache {
  readonly #database: CachedDatabase;
  /** Cached content; `undefined` if everything must be read again. */
  #known: StoreContent | undefined;
  /** UIDs of claims that this instance has changed since the content was read. */
  readonly #changed = new Set<string>();
  /** Whether the version was compared within the open transaction. */
  #isAlone = false;
  /** Whether the present run of synchronous code has compared the version. */
  #isChecked = false;

  constructor(database: CachedDatabase) {
    this.#database = database;
  }

  /** Returns the present content. If a list is absent, the caller reads and sets it. */
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

  /** Records that a claim was changed, or is about to change. */
  changed(claimUid: string): void {
    this.#changed.add(claimUid);
  }

  forget(list: 'unrestored' | 'conditions'): void {
    delete this.#known?.[list];
  }

  /** Records the beginning of a transaction. Before it began, another instance may have written. */
  begun(isNested: boolean): void {
    this.#isChecked &&= isNested;
  }

  /** Records that a transaction was rolled back. */
  undone(): void {
    this.#known = undefined;
  }

  ended(isNested: boolean): void {
    this.#isAlone &&= isNested;
  }
}

/** Resolved promise: its callbacks run after the present synchronous code. */
const endOfTurn = Promise.resolve();

function byName({ identity: one }: StoredClaim, { identity: other }: StoredClaim): number {
  const [a, b] = one.namespace === other.namespace ? [one.name, other.name] : [one.namespace, other.namespace];
  return a < b ? -1 : Number(a > b);
}
