/** A shorter input is nice to have, and the time of the run is short. */
const maxMs = 2000;

/**
 * Leaves out what an input does not need, from large parts down to single bytes.
 * @param stillFails whether a shorter input shows the same
 */
export async function minimize(
  input: Uint8Array,
  stillFails: (candidate: Uint8Array) => Promise<boolean>,
): Promise<Uint8Array> {
  let current = input;
  const endsAtMs = performance.now() + maxMs;
  for (let part = Math.ceil(input.length / 2); part >= 1; part = part === 1 ? 0 : Math.ceil(part / 2)) {
    for (let at = 0; at < current.length && performance.now() < endsAtMs; ) {
      const candidate = Uint8Array.from([...current.subarray(0, at), ...current.subarray(at + part)]);
      if (await stillFails(candidate)) current = candidate;
      else at += part;
    }
  }
  return current;
}
