import { asOneError } from '../model/index.ts';

/**
 * Runs a task for each item, one after the other; a failed task does not keep the others from running.
 * @param concernsAll whether a failure affects all items, such as an unreadable store: then the rest is not tried
 * @throws the failures as one error when all were tried; a failure that affects all items at once
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
