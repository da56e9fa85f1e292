import { FieldReader, Prefixes } from './field-reader.ts';

/** Which fields of pods and containers are decoded. */
export interface DecodeOptions {
  /** Fields that are skipped, and empty for the handlers. */
  omit?: readonly OmittedField[];
  /**
   * Prefixes of variables. `env` of a container then has only variables that begin with one of them, as `NAME=` without
   * the value: at most 300 for each prefix, and the first 64 bytes of a longer name. Absent: all variables.
   */
  envNames?: readonly string[];
}

export type OmittedField = 'labels' | 'annotations' | 'args' | 'mounts';

/** Removes what is not decoded from an encoded message, without decoding it. */
export type Trim = (message: Buffer) => Buffer;

const mostNames = 300;
const mostNameBytes = 64;
const equalsSign = '='.charCodeAt(0);

/** What happens to a field of a message; fields without a plan are kept. */
type FieldPlan = 'drop' | Prefixes | { fields: Plan };
type Plan = ReadonlyMap<number, FieldPlan>;

/** Numbers of the fields in `PodSandbox` and `Container` of `nri.proto`. */
const podFields: Partial<Record<OmittedField, number>> = { labels: 5, annotations: 6 };
const containerFields: Record<OmittedField, number> = { labels: 5, annotations: 6, args: 7, mounts: 9 };
const envField = 8;

/**
 * Returns the trim of messages with pods and containers in these fields.
 * @param fields numbers of the fields, as in `nri.proto`
 */
export function createTrim({ omit = [], envNames }: DecodeOptions, fields: { pod: number; container: number }): Trim {
  const dropped = (numbers: Partial<Record<OmittedField, number>>) =>
    omit.flatMap((name): [number, FieldPlan][] => (numbers[name] === undefined ? [] : [[numbers[name], 'drop']]));
  const ofContainer = new Map(dropped(containerFields));
  if (envNames !== undefined) ofContainer.set(envField, new Prefixes(envNames.map((prefix) => Buffer.from(prefix))));
  const plan: Plan = new Map<number, FieldPlan>([
    [fields.pod, { fields: new Map(dropped(podFields)) }],
    [fields.container, { fields: ofContainer }],
  ]);
  const isWhole = omit.length === 0 && envNames === undefined;
  return (message) => (isWhole ? message : new Trimmed(message, plan).bytes);
}

/** A copy of the kept fields. Bytes that are no field are kept, so that the decoder rejects them. */
class Trimmed {
  readonly #message: Buffer;
  readonly #kept: Buffer;
  #length = 0;

  constructor(message: Buffer, plan: Plan) {
    this.#message = message;
    this.#kept = Buffer.allocUnsafe(message.length);
    this.#fields(new FieldReader(message), plan);
  }

  get bytes(): Buffer {
    return this.#kept.subarray(0, this.#length);
  }

  #fields(reader: FieldReader, plan: Plan, limit = this.#message.length): void {
    const counts = new Map<Buffer, number>();
    let sought: Prefixes | undefined;
    while (reader.next()) {
      const what = reader.wireType === 2 ? plan.get(reader.number) : undefined;
      if (what === undefined) this.#copy(reader.start, reader.end);
      else if (what === 'drop') reader.skipAlike();
      else if (what instanceof Prefixes) sought = this.#name(reader, sought ?? what, counts);
      else this.#submessage(reader, what.fields);
    }
    this.#copy(reader.start, limit);
  }

  #submessage({ start, body, end }: FieldReader, plan: Plan): void {
    this.#copy(start, body);
    const kept = this.#length;
    this.#fields(new FieldReader(this.#message, body, end), plan, end);
    this.#setLength(kept, end - body);
  }

  /** @returns the prefixes that are still sought */
  #name(reader: FieldReader, prefixes: Prefixes, counts: Map<Buffer, number>): Prefixes {
    const { start, body, end } = reader;
    const prefix = prefixes.find(this.#message, body, end);
    if (prefix === undefined) {
      reader.skipAlike(prefixes);
      return prefixes;
    }
    const name = this.#message.subarray(body, Math.min(end, body + mostNameBytes));
    this.#copy(start, body);
    const kept = this.#length;
    this.#copy(body, body + (name.indexOf(equalsSign) + 1 || name.length));
    this.#setLength(kept, end - body);
    const count = (counts.get(prefix) ?? 0) + 1;
    counts.set(prefix, count);
    return count < mostNames ? prefixes : prefixes.without(prefix);
  }

  #copy(start: number, end: number): void {
    if (end > start) this.#length += this.#message.copy(this.#kept, this.#length, start, end);
  }

  /**
   * Writes the new length of a copied field over the earlier one, which takes as many bytes or more: leading zeros are
   * valid in a varint.
   * @param body where the content starts in the copy
   */
  #setLength(body: number, earlier: number): void {
    let rest = this.#length - body;
    if (rest === earlier) return;
    let at = body - 1;
    while (at > 0 && this.#kept[at - 1]! >= 0x80) at--;
    for (; at < body; at++, rest = Math.floor(rest / 128)) this.#kept[at] = (rest % 128) | (at < body - 1 ? 0x80 : 0);
  }
}
