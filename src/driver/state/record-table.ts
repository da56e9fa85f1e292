type Query = (sql: string, ...values: string[]) => Record<string, unknown>[];

/** Records that were read since another instance has last written. */
export interface KnownRecords {
  /** Texts by directory. Directories without a record are not cached, since there could be any number. */
  texts: Map<string, string>;
  names: string[] | undefined;
}

/**
 * Table of the framework's records: one text for each claim, under the name of the claim's directory.
 * Every method throws StateError `store-unusable`.
 */
export class RecordTable {
  readonly #query: Query;
  readonly #known: () => KnownRecords;

  constructor(query: Query, known: () => KnownRecords) {
    this.#query = query;
    this.#known = known;
  }

  read(dir: string): string | undefined {
    const { texts } = this.#known();
    const known = texts.get(dir);
    if (known !== undefined) return known;
    const [row] = this.#query('SELECT record FROM records WHERE dir = ?', dir);
    if (row === undefined) return undefined;
    const text = String(row.record);
    texts.set(dir, text);
    return text;
  }

  names(): string[] {
    const known = this.#known();
    known.names ??= this.#query('SELECT dir FROM records').map(({ dir }) => String(dir));
    return known.names;
  }

  write(dir: string, record: string): void {
    this.#change(dir, record, 'INSERT OR REPLACE INTO records (dir, record) VALUES (?, ?)', dir, record);
  }

  delete(dir: string): void {
    this.#change(dir, undefined, 'DELETE FROM records WHERE dir = ?', dir);
  }

  /**
   * Changes a record. Reads the known content before the change: an exception after it would look as if nothing was changed.
   */
  #change(dir: string, record: string | undefined, ...statement: Parameters<Query>): void {
    const known = this.#known();
    this.#query(...statement);
    if (record === undefined) known.texts.delete(dir);
    else known.texts.set(dir, record);
    known.names = undefined;
  }
}
