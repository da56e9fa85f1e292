/** Candidates for one value: the ordinary case first, then halves. */
const smaller = [() => 0, (value: number) => Math.floor(value / 2), (value: number) => Math.max(0, value - 1)];

/**
 * Makes a tape shorter and its numbers smaller, while it shows the same. Values at the end are removed first, then
 * blocks are set to zero or left out, from large ones to single values: leaving out a block shifts everything after it,
 * and a zero keeps it in place.
 * @param shows whether a tape still reproduces the finding
 * @param isOver ends it early, with the best so far
 */
export async function shrink(
  values: readonly number[],
  shows: (candidate: readonly number[]) => Promise<boolean>,
  isOver: () => boolean,
): Promise<readonly number[]> {
  let best = withoutZeros(values);
  const attempt = async (candidate: readonly number[]) => {
    const trimmed = withoutZeros(candidate);
    if (!isSimpler(trimmed, best) || !(await shows(trimmed))) return false;
    best = trimmed;
    return true;
  };
  for (let before: readonly number[] | undefined; before !== best && !isOver(); ) {
    before = best;
    for (let length = 0; length < best.length && !isOver(); length = Math.ceil((length + best.length) / 2)) {
      if (await attempt(best.slice(0, length))) break;
      if (best.length - length <= 1) break;
    }
    for (let size = Math.ceil(best.length / 2); size >= 1 && !isOver(); size = size === 1 ? 0 : Math.ceil(size / 2)) {
      for (let at = 0; at < best.length && !isOver(); at += size) {
        const zeros = best.map((value, index) => (index >= at && index < at + size ? 0 : value));
        if (await attempt(zeros)) continue;
        await attempt([...best.slice(0, at), ...best.slice(at + size)]);
      }
    }
    for (let at = 0; at < best.length && !isOver(); at++) {
      for (const step of smaller) await attempt(best.map((value, index) => (index === at ? step(value) : value)));
    }
  }
  return best;
}

function withoutZeros(values: readonly number[]): readonly number[] {
  return values.slice(0, values.findLastIndex((value) => value > 0) + 1);
}

function isSimpler(left: readonly number[], right: readonly number[]): boolean {
  if (left.length !== right.length) return left.length < right.length;
  const at = left.findIndex((value, index) => value !== right[index]);
  return at !== -1 && left[at]! < right[at]!;
}
