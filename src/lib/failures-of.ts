/** Waits for all tasks, also if some fail. @returns the errors of those */
export async function failuresOf(tasks: readonly Promise<unknown>[]): Promise<unknown[]> {
  return (await Promise.allSettled(tasks)).flatMap((end) => (end.status === 'rejected' ? [end.reason] : []));
}
