/** Waits for all tasks, even if some fail. @returns the errors of the failed tasks */
export async function failuresOf(tasks: readonly Promise<unknown>[]): Promise<unknown[]> {
  return (await Promise.allSettled(tasks)).flatMap((end) => (end.status === 'rejected' ? [end.reason] : []));
}
