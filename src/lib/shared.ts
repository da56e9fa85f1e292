/** Makes concurrent calls of a task share one run: a call that comes while one is running gets its result. */
export function shared<T>(task: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  return () => {
    running ??= task().finally(() => {
      running = undefined;
    });
    return running;
  };
}
