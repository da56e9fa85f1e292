import { beforeEach, describe, expect, it } from 'vitest';
import type { PluginHandlers, PodSandbox } from '../../../../nri/index.ts';
import {
  Metrics,
  Operations,
  observeFiles,
  observeHandlers,
  observePlugin,
  observerOf,
} from '../../../../src/app/ops/index.ts';
import type { MetadataCalls } from '../../../../src/driver/sandbox/index.ts';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import type { Clock } from '../../../../src/lib/clock.ts';
import { NetdraError } from '../../../../src/lib/errors.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';

/** Each look at the clock is 10 ms after the one before. */
function createClock(): Clock {
  let ms = 0;
  return { nowMs: () => (ms += 10), deadline: refuse, sleep: refuse };
}

function refuse(): never {
  throw new Error('not to be called');
}

const noFiles: MetadataCalls = {
  updateRequestMetadata: refuse,
  withdrawMetadata: refuse,
  openGate: refuse,
  holdGate: refuse,
  endGate: refuse,
};

let metrics: Metrics;
beforeEach(() => {
  metrics = new Metrics({ driver: 'd', version: '1', metadataEnabled: true });
});

/** Lines of the page, without the label that all have. */
async function series(start: string): Promise<string[]> {
  const lines = (await metrics.render()).text.split('\n').filter((line) => line.startsWith(start));
  return lines.map((line) => line.replace(/,driver_name="d"|driver_name="d",?/, '').replace('{}', ''));
}

describe('observePlugin', () => {
  const context = { signal: new AbortController().signal };

  it('passes results through, measures calls, and counts failed claims by error code', async () => {
    const results = new Map([
      ['1', { devices: [] }],
      ['2', { error: new Error('step', { cause: new NetdraError('device-in-use', 'busy') }) }],
      ['3', { error: new Error('something else') }],
    ]);
    const plugin = observePlugin(
      { prepareResourceClaims: async () => results, unprepareResourceClaims: refuse },
      metrics,
      createClock(),
    );
    expect(await plugin.prepareResourceClaims([] as AllocatedClaim[], context)).toBe(results);
    expect(await series('netdra_claim_errors_total')).toEqual([
      'netdra_claim_errors_total{operation="prepare",code="device-in-use"} 1',
      'netdra_claim_errors_total{operation="prepare",code="other"} 1',
    ]);
    expect(await series('netdra_claim_duration_seconds_sum')).toEqual([
      'netdra_claim_duration_seconds_sum{operation="prepare",result="error"} 0.01',
    ]);
  });

  it('counts a call that failed as a whole, and rethrows its error', async () => {
    const error = new NetdraError('store-unusable', 'disk full');
    const plugin = observePlugin(
      { prepareResourceClaims: refuse, unprepareResourceClaims: () => Promise.reject(error) },
      metrics,
      createClock(),
    );
    await expect(plugin.unprepareResourceClaims([], context)).rejects.toBe(error);
    expect(await series('netdra_claim_errors_total')).toEqual([
      'netdra_claim_errors_total{operation="unprepare",code="store-unusable"} 1',
    ]);
  });
});

describe('observeFiles', () => {
  const claim = { namespace: 'ns', name: 'c', uid: '1' };

  it('measures the duration of writes, but not of updates that change nothing', async () => {
    const updates = [true, false].map((isWritten) => ({ generation: 7, isWritten }));
    for (const update of updates) {
      const files = { ...noFiles, updateRequestMetadata: async () => update };
      const updater = observeFiles(files, metrics, createClock());
      expect(await updater.updateRequestMetadata(claim, 'r', [])).toBe(update);
    }
    expect(await series('dra_metadata_writes_total')).toEqual(['dra_metadata_writes_total 1']);
    expect(await series('dra_metadata_write_duration_seconds_bucket{le="0.0')).toContain(
      'dra_metadata_write_duration_seconds_bucket{le="0.01"} 1',
    );
    expect(await series('dra_metadata_write_duration_seconds_sum')).toEqual([
      'dra_metadata_write_duration_seconds_sum 0.01',
    ]);
  });

  it('counts a failure and rethrows it', async () => {
    const updater = observeFiles(noFiles, metrics, createClock());
    await expect(updater.updateRequestMetadata(claim, 'r', [])).rejects.toThrow('not to be called');
    for (const name of ['dra_metadata_write_errors_total', 'dra_metadata_update_errors_total']) {
      expect(await series(name)).toContain(`${name}{error_type="other"} 1`);
    }
  });
});

describe('observeHandlers', () => {
  const pod = { id: 's', name: 'p', namespace: 'ns', uid: 'u' } as PodSandbox;
  const context = { timeoutMs: 2_000, signal: new AbortController().signal };

  it('measures pod events, counts rejections, and adds no handlers that the plugin lacks', async () => {
    const handlers = observeHandlers(
      {
        runPodSandbox: () => Promise.reject(new NetdraError('vf-busy', 'busy')),
        stopPodSandbox: () => undefined,
      },
      metrics,
      createClock(),
    );
    expect(Object.keys(handlers)).toEqual(['runPodSandbox', 'stopPodSandbox']);
    await expect(handlers.runPodSandbox?.(pod, context)).rejects.toThrow('busy');
    await handlers.stopPodSandbox?.(pod, context);
    expect(await series('netdra_hook_duration_seconds_count')).toEqual([
      'netdra_hook_duration_seconds_count{hook="runPodSandbox",result="error"} 1',
      'netdra_hook_duration_seconds_count{hook="stopPodSandbox",result="ok"} 1',
    ]);
    expect(await series('netdra_hook_errors_total')).toEqual([
      'netdra_hook_errors_total{hook="runPodSandbox",code="vf-busy"} 1',
    ]);
  });

  it('measures the duration of calls for pods, but not of Synchronize and disconnections', async () => {
    class Hooks {
      postStartContainer(...call: unknown[]) {
        return call;
      }
      synchronize() {}
      disconnected() {}
    }
    const handlers = observeHandlers(new Hooks() as PluginHandlers, metrics, createClock()) as unknown as Hooks;
    expect(await handlers.postStartContainer(pod)).toEqual([pod]);
    handlers.synchronize();
    handlers.disconnected();
    expect(await series('netdra_hook_duration_seconds_count')).toEqual([
      'netdra_hook_duration_seconds_count{hook="postStartContainer",result="ok"} 1',
    ]);
  });
});

it('observerOf counts waits, connections and failed writes, and exports the current state of connections and writes', async () => {
  const more = { clock: createClock(), logger: new RecordingLogger() };
  await using ops = await Operations.start({ driver: 'd', version: '1', metadataEnabled: true, ...more });
  const observer = observerOf(ops, createClock());
  ({ metrics } = ops);
  expect(await series('netdra_slices_published')).toEqual(['netdra_slices_published 0']);
  for (const failure of [undefined, 'refused', undefined]) observer.connected('nri', failure);
  observer.published();
  for (const object of ['status', 'events', 'events'] as const) {
    observer.writeFailed(object, new NetdraError('api-forbidden', 'no'));
  }
  observer.waited('uid-1', 'ready', { queued: 100, attach: 2_000, write: 400, total: 2_500 });
  // Without an exemplar, which may have 128 characters.
  observer.waited('u'.repeat(122), 'ended', { queued: 9_000, attach: 0, write: 0, total: 9_000 });
  expect(
    (await series('netdra_attach_duration_seconds_sum')).map((line) => line.replace(/.*result/, 'result')),
  ).toEqual([
    'result="ready",phase="queued"} 0.1',
    'result="ready",phase="attach"} 2',
    'result="ready",phase="write"} 0.4',
    'result="ready",phase="total"} 2.5',
    'result="ended",phase="queued"} 9',
    'result="ended",phase="attach"} 0',
    'result="ended",phase="write"} 0',
    'result="ended",phase="total"} 9',
  ]);
  const { text } = await metrics.render('application/openmetrics-text; version=1.0.0');
  expect(text).toMatch(
    /attach_duration_seconds_bucket\{le="2.5",driver_name="d",result="ready",phase="total"\} 1 # \{pod_uid="uid-1"\} 2.5 \d+/,
  );
  // Without TLS there is no certificate.
  expect((await series('netdra_certificate_')).filter((line) => !line.startsWith('#'))).toEqual([]);
  observer.metadataFailed(new NetdraError('metadata-unwritable', 'no space left'));
  expect(await series('dra_metadata_write_errors_total')).toContain(
    'dra_metadata_write_errors_total{error_type="metadata-unwritable"} 1',
  );
  expect(await series('netdra_connects_total{peer="nri"')).toEqual(['netdra_connects_total{peer="nri"} 2']);
  expect(await series('netdra_connected')).toEqual([
    'netdra_connected{peer="kubelet"} 0',
    'netdra_connected{peer="nri"} 1',
  ]);
  expect(await series('netdra_slices_published')).toEqual(['netdra_slices_published 1']);
  expect(await series('netdra_api_write_errors_total')).toEqual([
    'netdra_api_write_errors_total{object="status",code="api-forbidden"} 1',
    'netdra_api_write_errors_total{object="events",code="api-forbidden"} 2',
  ]);
});
