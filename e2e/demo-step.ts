/** Prints the current step of a demo, and its duration when it is done. */
export async function demoStep<T>(what: string, task: () => Promise<T>): Promise<T> {
  const from = performance.now();
  process.stdout.write(`${what} ... `);
  const result = await task();
  console.log(`${Math.round(performance.now() - from)} ms`);
  return result;
}
