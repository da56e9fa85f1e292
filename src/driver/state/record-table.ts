type Query = (sql: string, ...values: string[]) => Record<string, unknown>[];

/**
 * The table of the framework's records: one text for each claim, under the name of the claim's directory.
 * Every method throws StateError `store-unusable`.
 */
export class RecordTable {
  readonly isReadOnly: boolean;
  readonly #query: Query;
  readonly #exists: boolean;

  /** @param options.exists `false` for a store that a tool reads before its driver has migrated it */
  constructor(query: Query, options: { isReadOnly: boolean; exists: boolean }) {
    this.#query = query;
    this.isReadOnly = options.isReadOnly;
    this.#exists = options.exists;
  }

  read(dir: string): string | undefined {
    const [row] = this.#exists ? this.#query('SELECT record FROM records WHERE dir = ?', dir) : [];
    return row && String(row.record);
  }

  names(): string[] {
    return this.#exists ? this.#query('SELECT dir FROM records').map(({ dir }) => String(dir)) : [];
  }

  write(dir: string, record: string): void {
    this.#query('INSERT OR REPLACE INTO records (dir, record) VALUES (?, ?)', dir, record);
  }

  delete(dir: string): void {
    this.#query('DELETE FROM records WHERE dir = ?', dir);
  }
}
