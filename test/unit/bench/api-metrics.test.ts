import { describe, expect, it } from 'vitest';
import { ApiMetrics } from '../../../e2e/cluster/scale/api-metrics.ts';

const scrape = (lists: number, posts: number, refused: number, bytes: number) =>
  [
    `apiserver_request_total{code="200",group="resource.k8s.io",resource="resourceslices",verb="LIST"} ${lists}`,
    `apiserver_request_total{code="201",group="resource.k8s.io",resource="resourceslices",verb="POST"} ${posts}`,
    `apiserver_request_total{code="409",group="resource.k8s.io",resource="resourceslices",verb="PUT"} ${refused}`,
    `apiserver_request_total{code="201",group="",resource="pods",verb="POST"} 99`,
    `apiserver_request_body_size_bytes_sum{group="resource.k8s.io",resource="resourceslices",verb="create"} ${bytes}`,
    `apiserver_response_sizes_sum{group="resource.k8s.io",resource="resourceslices",verb="LIST"} ${2 * bytes}`,
    `apiserver_watch_events_sizes_sum{group="resource.k8s.io",resource="resourceslices",version="v1"} ${3 * bytes}`,
  ].join('\n');

describe('ApiMetrics', () => {
  it('tells reads, writes and what was refused of one resource, and bytes, since another moment', () => {
    const [before, now] = [new ApiMetrics(scrape(1, 0, 0, 100)), new ApiMetrics(scrape(4, 2, 1, 150))];
    expect(now.costOf('resourceslices', before)).toEqual({
      ...{ reads: 3, writes: 2, refused: 1, receivedBytes: 50, sentBytes: 100, watchedBytes: 150 },
    });
    expect(now.costOf('nodes', before)).toMatchObject({ reads: 0, writes: 0, sentBytes: 0 });
  });
});
