import { FieldReader, Prefixes } from './field-reader.ts';

/** Selection of the fields of pods and containers that are decoded. */
export interface DecodeOptions {
  /** Fields that are not decoded; handlers see them empty. */
  omit?: readonly OmittedField[];
  /**
   * Prefixes of the environment variables that the handlers need. `env` then holds only variables with one of these prefixes,
   * as `NAME=` without the value: at most 300 for each prefix, and only the first 64 bytes of a longer name. Absent: all
   * variables.
   */
  envNames?: readonly string[];
  /**
   * Prefixes of the host paths that the handlers need. `mounts` then holds only mounts whose source has one of these prefixes,
   * and none if the container has more than 1,000 mounts. Absent: all mounts.
   */
  mountSources?: readonly string[];
}

export type OmittedField = 'labels' | 'annotations' | 'args';

/** Removes the unselected fields from an encoded message, without decoding it. */
export type Trim = (message: Buffer) => Buffer;

const mostNames = 300;
const mostNameBytes = 64;
const mostMounts = 1_000;
const equalsSign = '='.charCodeAt(0);

/** Treatment of a field of a message; fields without a plan are kept. */
type FieldPlan = 'drop' | Prefixes | { sources: Prefixes } | { fields: Plan };
type Plan = ReadonlyMap<number, FieldPlan>;

/** Numbers of the fields in `PodSandbox`, `Container` and `Mount` of `nri.proto`. */
const podFields: Partial<Record<OmittedField, number>> = { labels: 5, annotations: 6 };
const containerFields: Record<OmittedField, number> = { labels: 5, annotations: 6, args: 7 };
const envField = 8;
const mountsField = 9;
const sourceField = 3;

/**
 * Returns the function that trims messages to the selected fields.
 * @param fields numbers of the fields that hold a pod and a container, as in `nri.proto`
 */
export function createTrim(
  { omit = [], envNames, mountSources }: DecodeOptions,
  fields: { pod: number; container: number },
): Trim {
  const dropped = (numbers: Partial<Record<OmittedField, number>>) =>
    omit.flatMap((name): [number, FieldPlan][] => (numbers[name] === undefined ? [] : [[numbers[name], 'drop']]));
  const ofContainer = new Map(dropped(containerFields));
  const prefixes = (all: readonly string[]) => new Prefixes(all.map((prefix) => Buffer.from(prefix)));
  if (envNames !== undefined) ofContainer.set(envField, prefixes(envNames));
  if (mountSources !== undefined) ofContainer.set(mountsField, { sources: prefixes(mountSources) });
  const plan: Plan = new Map<number, FieldPlan>([
    [fields.pod, { fields: new Map(dropped(podFields)) }],
    [fields.container, { fields: ofContainer }],
  ]);
  const isWhole = omit.length === 0 && envNames === undefined && mountSources === undefined;
  return (message) => (isWhole ? message : new Trimmed(message, plan).bytes);
}

/** A trimmed copy of a message. Keeps bytes that form no valid field, so that the decoder rejects them. */
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
    const mounts: [start: number, end: number][] = [];
    let mountCount = 0;
    while (reader.next()) {
      const what = reader.wireType === 2 ? plan.get(reader.number) : undefined;
      if (what === undefined) this.#copy(reader.start, reader.end);
      else if (what === 'drop') reader.skipAlike();
      else if (what instanceof Prefixes) sought = this.#name(reader, sought ?? what, counts);
      else if ('fields' in what) this.#submessage(reader, what.fields);
      else if (++mountCount > mostMounts) reader.skipAlike();
      else if (this.#hasSource(reader, what.sources)) mounts.push([reader.start, reader.end]);
    }
    // All mounts or none: from a part of them, a handler would conclude that the others do not exist.
    if (mountCount <= mostMounts) for (const [start, end] of mounts) this.#copy(start, end);
    this.#copy(reader.start, limit);
  }

  #submessage({ start, body, end }: FieldReader, plan: Plan): void {
    this.#copy(start, body);
    const kept = this.#length;
    this.#fields(new FieldReader(this.#message, body, end), plan, end);
    this.#setLength(kept, end - body);
  }

  /** Copies the name of a variable that has a wanted prefix. @returns the prefixes whose limit of names is not reached */
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

  #hasSource({ body, end }: FieldReader, sources: Prefixes): boolean {
    const mount = new FieldReader(this.#message, body, end);
    while (mount.next()) {
      if (mount.number === sourceField) return sources.find(this.#message, mount.body, mount.end) !== undefined;
    }
    return false;
  }

  #copy(start: number, end: number): void {
    if (end > start) this.#length += this.#message.copy(this.#kept, this.#length, start, end);
  }

  /**
   * Overwrites the length of a copied field, in the bytes of its former length. The new length needs as many bytes or fewer;
   * it is padded if it needs fewer, which the varint encoding allows.
   * @param body offset of the field's content in the copy
   * @param earlier former length, in bytes
   */
  #setLength(body: number, earlier: number): void {
    let rest = this.#length - body;
    if (rest === earlier) return;
    let at = body - 1;
    while (at > 0 && this.#kept[at - 1]! >= 0x80) at--;
    for (; at < body; at++, rest = Math.floor(rest / 128)) this.#kept[at] = (rest % 128) | (at < body - 1 ? 0x80 : 0);
  }
}
