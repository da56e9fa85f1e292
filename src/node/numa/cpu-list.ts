/** Above the maximum of every kernel (`NR_CPUS`, `MAX_NUMNODES`), so that a malformed list cannot fill the memory. */
const largest = 0xffff;

/**
 * The numbers of a list such as `0-3,8`, as the kernel writes CPUs and memory nodes. An empty text is an empty list.
 * @returns `undefined` if it is not such a list
 */
export function parseCpuList(text: string): Set<number> | undefined {
  const numbers = new Set<number>();
  for (const range of text.trim() === '' ? [] : text.trim().split(',')) {
    const [, from, to = from] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(range) ?? [];
    if (from === undefined || Number(to) < Number(from) || Number(to) > largest) return undefined;
    for (let number = Number(from); number <= Number(to); number++) numbers.add(number);
  }
  return numbers;
}

/** The reverse: the shortest list. */
export function cpuList(numbers: Iterable<number>): string {
  const ranges: [from: number, to: number][] = [];
  for (const number of [...numbers].sort((one, other) => one - other)) {
    const last = ranges.at(-1);
    if (last !== undefined && number <= last[1] + 1) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(',');
}
