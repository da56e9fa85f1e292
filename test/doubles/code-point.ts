import fc from 'fast-check';

/** Those between are halves of surrogate pairs. */
const surrogates = { first: 0xd800, count: 0x800 };

/** One code point, for `fc.string`. Its own unit `binary` gives the same, and takes a second to be made. */
export const codePoint = fc
  .nat({ max: 0x10ffff - surrogates.count })
  .map((index) => String.fromCodePoint(index < surrogates.first ? index : index + surrogates.count));
