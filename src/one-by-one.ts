/**
 * Runs tasks that nobody waits for, in the order of the calls, each in a turn of the event loop of its own: what has come in
 * meanwhile is dealt with between two of them.
 */
export function createOneByOne(): (task: () => void) => void {
  const waiting: (() => void)[] = [];
  const next = () => {
    try {
      waiting[0]?.();
    } finally {
      waiting.shift();
      if (waiting.length > 0) setImmediate(next);
    }
  };
  return (task) => {
    waiting.push(task);
    if (waiting.length === 1) setImmediate(next);
  };
}
