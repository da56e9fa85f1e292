/** Exponents of ten or two, by suffix. Source: apimachinery `resource.Quantity`. */
const decimalExponents: Record<string, number> = { n: -9, u: -6, m: -3, '': 0, k: 3, M: 6, G: 9, T: 12, P: 15, E: 18 };
const binaryExponents: Record<string, number> = { Ki: 10, Mi: 20, Gi: 30, Ti: 40, Pi: 50, Ei: 60 };
/** Limit for exponents, far beyond the range of a Quantity: it keeps a typing error from allocating gigabytes. */
const maxExponent = 30;
const nano = 1_000_000_000n;

const pattern = /^([+-]?)(\d*)(?:\.(\d*))?(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?$/;

/**
 * Parses a Kubernetes quantity (`1500`, `1.5G`, `64Mi`, `100m`, `1e3`) into a number of billionths. Equal quantities such as
 * `1024Mi` and `1Gi` give equal numbers, which matters since the API server stores the canonical text. Rounds finer values up,
 * as the API server does.
 * @returns `undefined` if the text is not a quantity
 */
export function parseQuantity(text: string): bigint | undefined {
  const [matched, sign, whole = '', fraction = '', suffix = ''] = pattern.exec(text) ?? [];
  if (matched === undefined || whole + fraction === '') return undefined;
  const digits = BigInt(whole + fraction);
  const magnitude = scale(digits, fraction.length, suffix);
  if (magnitude === undefined) return undefined;
  return sign === '-' ? -magnitude : magnitude;
}

function scale(digits: bigint, decimals: number, suffix: string): bigint | undefined {
  const binary = binaryExponents[suffix];
  if (binary !== undefined) return divideUp((digits * nano) << BigInt(binary), 10n ** BigInt(decimals));
  const exponent = decimalExponents[suffix] ?? Number(suffix.slice(1));
  if (Math.abs(exponent) > maxExponent) return undefined;
  const shift = exponent + 9 - decimals;
  return shift >= 0 ? digits * 10n ** BigInt(shift) : divideUp(digits, 10n ** BigInt(-shift));
}

function divideUp(value: bigint, by: bigint): bigint {
  return (value + by - 1n) / by;
}
