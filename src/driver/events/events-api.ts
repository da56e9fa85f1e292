import type { KubeApi } from '../../framework/kube/index.ts';
import type { EventSeries, KubeEvent } from './event.ts';

/** Access to events in the API server. */
export interface EventsApi {
  /** @throws KubeError `api-conflict` if an event of that name exists */
  create(event: KubeEvent, signal: AbortSignal): Promise<void>;
  /** Records that an event has happened again. @throws KubeError `api-not-found` if the server no longer has it */
  repeat(event: KubeEvent, series: EventSeries, signal: AbortSignal): Promise<void>;
}

export function createEventsApi(kube: Pick<KubeApi, 'request'>): EventsApi {
  const pathOf = ({ metadata: { namespace } }: KubeEvent) => `/apis/events.k8s.io/v1/namespaces/${namespace}/events`;
  return {
    async create(event, signal) {
      await kube.request({ method: 'POST', path: pathOf(event), body: event, signal });
    },
    async repeat(event, series, signal) {
      await kube.request({
        method: 'PATCH',
        path: `${pathOf(event)}/${event.metadata.name}`,
        contentType: 'application/merge-patch+json',
        body: { series },
        signal,
      });
    },
  };
}
