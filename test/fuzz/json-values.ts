/** Limits, and what lies beside them. */
export const numbers = [0, -1, 1, 1.5, 15, 16, 17, 67, 68, 253, 254, 65_535, 65_536, 2 ** 31, 2 ** 32, 2 ** 53, -1e300];
/** Texts that parsers stumble over; names of what objects inherit among them. */
export const texts = [
  ...['', '.', '..', '/', 'a/b', '../../etc/passwd', '%d', '%s', 'a b', '\0', '\ud800', '\u2028', '0', '-1', '1.0.0'],
  ...['__proto__', 'constructor', 'toString', 'ä'.repeat(8), ...[15, 16, 253, 10_240].map((size) => 'x'.repeat(size))],
  ...['0.0.0.0/0', '10.0.0.1/24', '224.0.0.1/32', '::/0', '::ffff:10.0.0.1/120', '10.0.0.1', '2001:db8::1'],
  ...['02:00:00:00:00:01', '00:00:00:00:00:00', 'ff:ff:ff:ff:ff:ff', '0000:3b:02.1'],
];
export const structures = [
  [],
  {},
  [[]],
  [null],
  { a: 1 },
  Array(200).fill(0),
  JSON.parse('{"__proto__":{"polluted":true}}'),
];
export const values: readonly unknown[] = [null, true, false, ...numbers, ...texts, ...structures];
