import { asOneError } from '../sandbox/errors.ts';

/**
 * Runs a task for each item, one after the other. One that fails does not keep the others from their turn.
 * @param concernsAll whether a failure is that of something which all items need: then the others are not tried
 * @throws the failures as one error; at once what concerns all
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
