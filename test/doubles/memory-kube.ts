import { toKubeError } from '../../src/framework/kube/errors.ts';
import { KubeError, type KubeRequest, type KubeRequests } from '../../src/framework/kube/index.ts';
import { ApiRequests } from './api-server-requests.ts';
import { ApiStatusError } from './api-server-status.ts';
import { type ObjectStore, wireCopy } from './api-server-store.ts';

/** What becomes of a request: `refused` does not reach the server, and of a `lost` one only the answer is missing. */
export type RequestFate = 'answered' | 'refused' | 'lost';

/** Requests to the objects of a store, without a server. @param fateOf called before each request */
export function memoryKube(
  store: ObjectStore,
  fateOf: (request: KubeRequest) => Promise<RequestFate> = async () => 'answered',
): KubeRequests {
  const requests = new ApiRequests(store);
  return {
    async request<T>(request: KubeRequest): Promise<T> {
      const { method, path, body } = request;
      const fate = await fateOf(request);
      const unreachable = new KubeError('api-unreachable', `${method} ${path}`, { retriable: true });
      if (fate === 'refused') throw unreachable;
      try {
        const answer = requests.answer({ ...request, ...(body && { body: wireCopy(body) }) }) as T;
        if (fate === 'lost') throw unreachable;
        return answer;
      } catch (error) {
        if (!(error instanceof ApiStatusError)) throw error;
        throw toKubeError(`${method} ${path}`, error.httpStatus, JSON.stringify(error.toStatus()));
      }
    },
  };
}
