import type { Random } from './random.ts';

/** What a mutation can draw on besides the input. */
export interface MutationSource {
  random: Random;
  /** Other inputs, to take parts from. */
  corpus: readonly Uint8Array[];
  dictionary: readonly Uint8Array[];
  maxBytes: number;
}

type Mutation = (bytes: Uint8Array, source: MutationSource) => Uint8Array;

/** Limits of integers, and what lies beside them: lengths and counts go wrong there. */
const interestingNumbers = [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127, 128, 255, 256, 4095, 4096, 32767];
const largeNumbers = [32768, 65535, 65536, 4194304, 4194305, 16777215, 16777216, 2147483647, 2147483648, 4294967295];

const mutations: readonly Mutation[] = [
  flipBit,
  setByte,
  setByte,
  setNumber,
  setNumber,
  insertRandom,
  removeRange,
  removeRange,
  repeatRange,
  copyWithin,
  insertWord,
  overwriteWord,
  takeFromOther,
  cutOff,
];

/** Changes an input in one to five places. Never changes the bytes it is given. */
export function mutateBytes(input: Uint8Array, source: MutationSource): Uint8Array {
  let bytes = input;
  for (let left = source.random.size(5); left > 0; left--) bytes = source.random.pick(mutations)(bytes, source);
  return bytes.length > source.maxBytes ? bytes.slice(0, source.maxBytes) : bytes;
}

function flipBit(bytes: Uint8Array, { random }: MutationSource): Uint8Array {
  return changed(bytes, random, (copy, at) => {
    copy[at]! ^= 1 << random.below(8);
  });
}

function setByte(bytes: Uint8Array, { random }: MutationSource): Uint8Array {
  return changed(bytes, random, (copy, at) => {
    copy[at] = random.below(256);
  });
}

/** A number of one, two or four bytes, in either byte order, in place of what is there. */
function setNumber(bytes: Uint8Array, { random }: MutationSource): Uint8Array {
  const value = random.oneIn(3) ? random.pick(largeNumbers) : random.pick(interestingNumbers);
  const size = random.pick([1, 2, 4]);
  if (bytes.length < size) return bytes;
  const copy = Uint8Array.from(bytes);
  const view = new DataView(copy.buffer);
  const at = random.below(bytes.length - size + 1);
  const little = random.oneIn(2);
  if (size === 1) view.setUint8(at, value);
  else if (size === 2) view.setUint16(at, value, little);
  else view.setUint32(at, value, little);
  return copy;
}

function insertRandom(bytes: Uint8Array, { random }: MutationSource): Uint8Array {
  const noise = Uint8Array.from({ length: random.size(32) }, () => random.below(256));
  return spliced(bytes, random.below(bytes.length + 1), 0, noise);
}

function removeRange(bytes: Uint8Array, { random }: MutationSource): Uint8Array {
  if (bytes.length === 0) return bytes;
  return spliced(bytes, random.below(bytes.length), random.size(bytes.length), new Uint8Array());
}

/** A part of the input many times over: long lists, deep nesting. */
function repeatRange(bytes: Uint8Array, { random, maxBytes }: MutationSource): Uint8Array {
  const room = maxBytes - bytes.length;
  if (bytes.length === 0 || room <= 0) return bytes;
  const start = random.below(bytes.length);
  const part = bytes.subarray(start, start + random.size(64));
  const times = random.size(Math.max(1, Math.floor(room / part.length)));
  const repeated = new Uint8Array(part.length * times);
  for (let index = 0; index < times; index++) repeated.set(part, index * part.length);
  return spliced(bytes, start, 0, repeated);
}

function copyWithin(bytes: Uint8Array, { random }: MutationSource): Uint8Array {
  return changed(bytes, random, (copy, at) => {
    const from = random.below(copy.length);
    copy.copyWithin(at, from, from + random.size(64));
  });
}

function insertWord(bytes: Uint8Array, { random, dictionary }: MutationSource): Uint8Array {
  if (dictionary.length === 0) return bytes;
  return spliced(bytes, random.below(bytes.length + 1), 0, random.pick(dictionary));
}

function overwriteWord(bytes: Uint8Array, { random, dictionary }: MutationSource): Uint8Array {
  if (dictionary.length === 0) return bytes;
  const word = random.pick(dictionary);
  return spliced(bytes, random.below(bytes.length + 1), word.length, word);
}

function takeFromOther(bytes: Uint8Array, { random, corpus }: MutationSource): Uint8Array {
  const other = random.pick(corpus);
  if (other.length === 0) return bytes;
  const from = random.below(other.length);
  const part = other.subarray(from, from + random.size(other.length));
  return spliced(bytes, random.below(bytes.length + 1), random.oneIn(2) ? 0 : part.length, part);
}

function cutOff(bytes: Uint8Array, { random }: MutationSource): Uint8Array {
  return bytes.slice(0, random.below(bytes.length + 1));
}

function changed(bytes: Uint8Array, random: Random, change: (copy: Uint8Array, at: number) => void): Uint8Array {
  if (bytes.length === 0) return bytes;
  const copy = Uint8Array.from(bytes);
  change(copy, random.below(copy.length));
  return copy;
}

/** The bytes with `removed` of them at `at` replaced by others. */
function spliced(bytes: Uint8Array, at: number, removed: number, inserted: Uint8Array): Uint8Array {
  const tail = bytes.subarray(Math.min(bytes.length, at + removed));
  const result = new Uint8Array(at + inserted.length + tail.length);
  result.set(bytes.subarray(0, at));
  result.set(inserted, at);
  result.set(tail, at + inserted.length);
  return result;
}
