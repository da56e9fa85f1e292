/** Runs background tasks in the order of the calls, each after the previous one has ended, successfully or not. */
export function createOneByOne(): (task: () => Promise<void>) => void {
  let last = Promise.resolve();
  return (task) => {
    // Tasks handle their own failures.
    last = last.then(task).catch(() => undefined);
  };
}
