import { explain } from '../../../../src/lib/errors.ts';

/** What a task that must fail says. */
export const failure = async (task: Promise<unknown>) =>
  explain(
    await task.then(
      () => 'nothing failed',
      (error) => error,
    ),
  );
