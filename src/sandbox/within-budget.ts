import type { PodSandbox } from '../../nri/index.ts';
import type { Clock } from '../clock.ts';
import { SandboxError } from './errors.ts';

/**
 * Waits for the work as long as the hook may take. The work itself goes on; its failure is never unhandled.
 * @throws SandboxError `hook-timeout`, or what the work does
 */
export async function withinBudget(
  work: Promise<void>,
  clock: Clock,
  budgetMs: number,
  pod: PodSandbox,
): Promise<void> {
  work.catch(() => undefined);
  using deadline = clock.deadline(budgetMs);
  await Promise.race([
    work,
    new Promise<never>((_, reject) => {
      deadline.signal.addEventListener('abort', () =>
        reject(
          new SandboxError('hook-timeout', `pod ${pod.namespace}/${pod.name} was not served within ${budgetMs} ms`, {
            retriable: true,
          }),
        ),
      );
    }),
  ]);
}
