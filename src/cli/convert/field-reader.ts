import { isTooDeep, maxJsonDepth } from '../../lib/json-depth.ts';
import type { ConversionReport, InputObject } from './report.ts';

/** Returns whether a value counts as unset, as with Go's `omitempty`. Unlike there, zero and false count as set. */
const isEmpty = (value: unknown) =>
  value === undefined ||
  value === null ||
  value === '' ||
  (Array.isArray(value) && value.length === 0) ||
  (typeof value === 'object' && Object.keys(value).length === 0);

/**
 * Reads the fields of an object and remembers which fields were read: {@link end} reports all others, so that a converter
 * cannot drop a field silently.
 */
export class FieldReader {
  readonly #report: ConversionReport;
  readonly #of: InputObject;
  readonly #path: readonly PropertyKey[];
  readonly #fields: Readonly<Record<string, unknown>>;
  readonly #read = new Set<string>();

  /** Creates a reader. @param path path of the fields in the object, for reports */
  constructor(report: ConversionReport, of: InputObject, path: readonly PropertyKey[], value: unknown) {
    this.#report = report;
    this.#of = of;
    this.#path = path;
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    this.#fields = isObject ? { ...value } : {};
    if (!isObject && !isEmpty(value)) report.lost(of, path, 'is not a map of fields', 'correct the object');
  }

  raw(name: string): unknown {
    this.#read.add(name);
    return isEmpty(this.#fields[name]) ? undefined : this.#fields[name];
  }

  text(name: string): string | undefined {
    const value = this.raw(name);
    return this.#typed(name, typeof value === 'number' ? `${value}` : value, 'string', 'text');
  }

  number(name: string): number | undefined {
    return this.#typed(name, this.raw(name), 'number', 'a number');
  }

  flag(name: string): boolean | undefined {
    return this.#typed(name, this.raw(name), 'boolean', 'true or false');
  }

  /** Reads `"on"` or `"off"`, the booleans of sriov-cni. */
  onOff(name: string): boolean | undefined {
    const value = this.text(name);
    if (value === undefined || value === 'on' || value === 'off') return value && value === 'on';
    this.lose(name, `${JSON.stringify(value)} is neither "on" nor "off"`, 'correct the object');
    return undefined;
  }

  texts(name: string): string[] | undefined {
    const value = this.raw(name);
    const list = [value].flat().filter((each) => each !== undefined);
    if (list.every((each) => typeof each === 'string' || typeof each === 'number')) {
      return list.length === 0 ? undefined : list.map(String);
    }
    this.lose(name, 'is not a list of texts', 'correct the object');
    return undefined;
  }

  /** Reads a map of strings. */
  labels(name: string): Record<string, string> {
    const entries = Object.entries(Object(this.raw(name)));
    return Object.fromEntries(entries.map(([key, value]) => [key, String(value)]));
  }

  object(name: string): FieldReader {
    return this.#nested([name], this.raw(name));
  }

  /** Reads the objects of a list, or a single object. */
  objects(name: string): FieldReader[] {
    const value = this.raw(name);
    if (value === undefined) return [];
    return Array.isArray(value)
      ? value.map((item, index) => this.#nested([name, index], item))
      : [this.#nested([name], value)];
  }

  /**
   * Parses a field that holds JSON text, and returns a reader of its fields; `undefined` if the field is absent or was
   * reported.
   */
  json(name: string): FieldReader | undefined {
    const text = this.text(name);
    const value = text === undefined ? undefined : this.parse(name, text);
    return value === undefined ? undefined : this.#nested([name], value);
  }

  /** Parses JSON from the text of a field; reports invalid JSON. */
  parse(name: string, text: string): unknown {
    try {
      const value: unknown = JSON.parse(text);
      if (!isTooDeep(value)) return value;
      this.lose(name, `is nested more than ${maxJsonDepth} levels deep`, 'correct the object');
    } catch (error) {
      this.lose(name, `is not valid JSON: ${(error as Error).message}`, 'correct the object');
    }
    return undefined;
  }

  nested(name: string, value: unknown): FieldReader {
    return this.#nested([name], value);
  }

  isSet(name: string): boolean {
    return !isEmpty(this.#fields[name]);
  }

  names(): string[] {
    return Object.keys(this.#fields);
  }

  /** Marks fields that do not affect the conversion as read. */
  skip(...names: string[]): void {
    for (const name of names) this.#read.add(name);
  }

  /** Reports that a field was not converted, with the remedy `todo`. */
  lose(name: string, why: string, todo: string): void {
    this.skip(name);
    this.#report.lost(this.#of, [...this.#path, name], why, todo);
  }

  /** Reports that a field was not converted, if it is set. */
  loseIfSet(name: string, why: string, todo: string): void {
    this.skip(name);
    if (this.isSet(name) && this.#fields[name] !== false) this.lose(name, why, todo);
  }

  /** Adds a note about a field that was converted. */
  note(name: string, what: string): void {
    this.#report.note(this.#of, [...this.#path, name], what);
  }

  /** Reports all fields that were not read. */
  end(): void {
    for (const [name, value] of Object.entries(this.#fields)) {
      if (this.#read.has(name) || isEmpty(value)) continue;
      this.lose(name, 'is not a field that netdra convert knows', 'set what it does in the output, or remove it');
    }
  }

  #nested(path: readonly PropertyKey[], value: unknown): FieldReader {
    return new FieldReader(this.#report, this.#of, [...this.#path, ...path], value);
  }

  #typed<T>(name: string, value: unknown, type: string, what: string): T | undefined {
    if (value === undefined || typeof value === type) return value as T | undefined;
    this.lose(name, `is not ${what}`, 'correct the object');
    return undefined;
  }
}
