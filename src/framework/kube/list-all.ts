import { defined } from '../../lib/defined.ts';
import { isKubeError } from './errors.ts';
import type { KubeList } from './types.ts';

/** Objects per page: some megabytes in clusters of thousands of nodes. Source: the default of `kubectl get --chunk-size`. */
const pageSize = 500;

/**
 * Returns all objects of a list, reading it page by page.
 * @param list sends one request, with the page in its query
 * @throws KubeError
 */
export async function listAll<T>(list: (page: Record<string, string>) => Promise<KubeList<T>>): Promise<T[]> {
  const items: T[] = [];
  let next: string | undefined;
  do {
    try {
      const page = await list({ limit: `${pageSize}`, ...defined({ continue: next }) });
      items.push(...page.items);
      next = page.metadata.continue;
    } catch (error) {
      // The server no longer has the version of the first page: reads the whole list at once, in its present version.
      if (next === undefined || !isKubeError(error, 'api-expired')) throw error;
      return (await list({})).items;
    }
  } while (next);
  return items;
}
