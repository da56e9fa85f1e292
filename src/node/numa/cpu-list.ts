/**
 * Maximum number in a list, above the largest CPU and memory node of every kernel. Source: `NR_CPUS` (8192 on x86) and
 * `NODES_SHIFT` (10) in Kconfig.
 */
const largest = 8191;
/** Maximum length of a list. The longest one contains every second number. */
const longestText = 32_768;

/**
 * Parses a list such as `0-3,8`, in the kernel's format for CPUs and memory nodes. An empty text is an empty list.
 * Overlapping ranges are merged first, so that repeated ranges cost no more time than their text.
 * @returns `undefined` if the text is not such a list, or longer than a kernel's list can be
 */
export function parseCpuList(text: string): Set<number> | undefined {
  if (text.length > longestText) return undefined;
  const list = text.trim();
  const ranges: [from: number, to: number][] = [];
  for (const range of list === '' ? [] : list.split(',')) {
    const [, from, to = from] = /^(\d{1,4})(?:-(\d{1,4}))?$/.exec(range) ?? [];
    if (from === undefined || Number(to) < Number(from) || Number(to) > largest) return undefined;
    ranges.push([Number(from), Number(to)]);
  }
  const numbers = new Set<number>();
  let next = 0;
  for (const [from, to] of ranges.sort(([one], [other]) => one - other)) {
    for (next = Math.max(next, from); next <= to; next++) numbers.add(next);
  }
  return numbers;
}

/** Formats numbers as the shortest list, such as `0-3,8`. */
export function cpuList(numbers: Iterable<number>): string {
  const ranges: [from: number, to: number][] = [];
  for (const number of [...numbers].sort((one, other) => one - other)) {
    const last = ranges.at(-1);
    if (last !== undefined && number <= last[1] + 1) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(',');
}
