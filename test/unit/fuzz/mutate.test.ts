import { describe, expect, it } from 'vitest';
import { type MutationSource, mutateBytes } from '../../fuzz/mutate-bytes.ts';
import { mutateJson } from '../../fuzz/mutate-json.ts';
import { Random } from '../../fuzz/random.ts';
import { substituteJson } from '../../fuzz/substitute-json.ts';

const seed = Buffer.from(JSON.stringify({ name: 'a', list: [1, 2, { deep: null }], text: 'x' }));
const source = (random: Random): MutationSource => ({
  random,
  corpus: [seed, Buffer.from('other')],
  dictionary: [Buffer.from('WORD')],
  maxBytes: 200,
});
const many = <T>(create: (random: Random) => T, seedNumber = 1): T[] => {
  const random = new Random(seedNumber, 'test');
  return Array.from({ length: 2000 }, () => create(random));
};

describe('Random', () => {
  it('gives the same numbers for the same seed and stream, and others for others', () => {
    const numbers = (seedNumber: number, stream: string) => {
      const random = new Random(seedNumber, stream);
      return Array.from({ length: 20 }, () => random.below(1000));
    };
    expect(numbers(5, 'a')).toEqual(numbers(5, 'a'));
    expect(numbers(5, 'a')).not.toEqual(numbers(6, 'a'));
    expect(numbers(5, 'a')).not.toEqual(numbers(5, 'b'));
  });

  it('gives every number below its bound about as often', () => {
    const counts = Array(10).fill(0) as number[];
    for (const number of many((random) => random.below(10))) counts[number]!++;
    expect(Math.min(...counts)).toBeGreaterThan(120);
    expect(many((random) => random.size(100)).every((size) => size >= 1 && size <= 100)).toBe(true);
  });
});

describe('mutateBytes()', () => {
  it('changes most inputs, keeps to the limit, and leaves what it was given alone', () => {
    const before = Buffer.from(seed);
    const changed = many((random) => mutateBytes(seed, source(random)));
    expect(changed.filter((bytes) => !before.equals(bytes)).length).toBeGreaterThan(1500);
    expect(Math.max(...changed.map(({ length }) => length))).toBeLessThanOrEqual(200);
    expect(seed.equals(before)).toBe(true);
    expect(changed.some((bytes) => Buffer.from(bytes).includes('WORD'))).toBe(true);
  });

  it('takes an empty input, and does the same again for the same seed', () => {
    expect(many((random) => mutateBytes(new Uint8Array(), source(random))).some(({ length }) => length > 0)).toBe(true);
    const run = () =>
      many((random) => mutateBytes(seed, source(random)), 3).map((bytes) => Buffer.from(bytes).toString('hex'));
    expect(run()).toEqual(run());
  });
});

describe('mutateJson()', () => {
  it('gives JSON, with other values, other keys and other depths', () => {
    const texts = many((random) => mutateJson(seed, random)).filter((bytes) => bytes !== undefined);
    expect(texts.length).toBeGreaterThan(1500);
    const all = texts.map((bytes) => Buffer.from(bytes).toString());
    for (const text of all) JSON.parse(text);
    expect(all.some((text) => text.includes('"__proto__":'))).toBe(true);
    expect(all.some((text) => text.includes('[[[[[[[['))).toBe(true);
    expect(new Set(all).size).toBeGreaterThan(1000);
  });

  it.each(['', 'no json', '{"a":'])('leaves %j to others', (text) => {
    expect(mutateJson(Buffer.from(text), new Random(1))).toBeUndefined();
  });
});

describe('substituteJson()', () => {
  it('leaves out each place, and puts each value in it, once', () => {
    const all = [...substituteJson(Buffer.from('{"a":{"b":1}}'), new Random(1), ['word'])].map(String);
    expect(all).toEqual(expect.arrayContaining(['{}', '{"a":{}}', '{"a":"word"}', '{"a":{"b":"word"}}', '"word"']));
    expect(all.filter((text) => text === '{"a":{"b":"word"}}')).toHaveLength(1);
    for (const text of all) JSON.parse(text);
  });

  it('gives nothing for what is no JSON', () => {
    expect([...substituteJson(Buffer.from('{"a'), new Random(1))]).toEqual([]);
  });
});
