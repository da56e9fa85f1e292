import { asOneError } from '../model/index.ts';

/**
 * Runs a task for each item, one after the other. If a task fails, the other items are still handled.
 * @param concernsAll returns whether a failure affects all items, such as an unreadable store: the remaining items are then
 * skipped
 * @throws a failure that affects all items, at once; otherwise all failures as one error, at the end
 */
export async function eachByItself<Item>(
  items: Iterable<Item>,
  task: (item: Item) => Promise<void>,
  concernsAll: (error: unknown) => boolean,
): Promise<void> {
  const errors: unknown[] = [];
  for (const item of items) {
    try {
      await task(item);
    } catch (error) {
      if (concernsAll(error)) throw error;
      errors.push(error);
    }
  }
  if (errors.length > 0) throw asOneError(errors);
}
