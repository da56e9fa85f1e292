/** Runs tasks that nobody waits for, in the order of the calls, each when the one before has ended, however it has. */
export function createOneByOne(): (task: () => Promise<void>) => void {
  let last = Promise.resolve();
  return (task) => {
    // Who cares what comes of a task looks after that in it.
    last = last.then(task).catch(() => undefined);
  };
}
