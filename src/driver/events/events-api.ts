import type { KubeApi } from '../../framework/kube/index.ts';
import type { EventSeries, KubeEvent } from './event.ts';

/** Access to events in the API server. */
export type EventsApi = ReturnType<typeof createEventsApi>;

export function createEventsApi(kube: Pick<KubeApi, 'request'>) {
  const pathOf = ({ metadata: { namespace } }: KubeEvent) => `/apis/events.k8s.io/v1/namespaces/${namespace}/events`;
  return {
    /** @throws KubeError `api-conflict` if an event of that name exists */
    async create(event: KubeEvent, signal: AbortSignal): Promise<void> {
      await kube.request({ method: 'POST', path: pathOf(event), body: event, signal });
    },
    /** Records that an event has happened again. @throws KubeError `api-not-found` if the server no longer has it */
    async repeat(event: KubeEvent, series: EventSeries, signal: AbortSignal): Promise<void> {
      const contentType = 'application/merge-patch+json';
      const path = `${pathOf(event)}/${event.metadata.name}`;
      await kube.request({ method: 'PATCH', path, contentType, body: { series }, signal });
    },
  };
}
