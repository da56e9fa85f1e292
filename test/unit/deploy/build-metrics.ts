import { Metrics } from '../../../src/app/ops/index.ts';
import { testDriver } from '../../doubles/objects.ts';

/** The metrics of a driver that has everything that there is a series of. */
export function buildMetrics(): Metrics {
  const metrics = new Metrics({ driver: testDriver, version: '1', metadataEnabled: true });
  metrics.readFrom({
    devicesOffered: () => 1,
    deviceCounts: () => ({
      withheld: { unrestored: 1 },
      inCondition: { 'no-carrier': 1 },
      free: 7,
      pfs: [
        {
          pf: 'ens1f0',
          pciAddress: '0000:3b:00.0',
          hasCarrier: true,
          vfs: { offered: 8, used: 1, free: 7, withheld: 0, hung: 0 },
        },
      ],
    }),
    deviceProblems: () => 1,
    isPolicyValid: () => true,
    vfTraffic: async () => ({
      samples: [
        {
          labels: { device: 'vf', namespace: 'tenant', pod: 'dpdk', claim: 'nic', interface: 'net1' },
          counters: {
            rxBytes: 1,
            txBytes: 1,
            rxPackets: 1,
            txPackets: 1,
            rxDropped: 1,
            txDropped: 1,
            rxErrors: 1,
            txErrors: 1,
          },
        },
      ],
      missing: { limit: 0, unreadable: 0 },
      failures: [],
    }),
    claimsByState: () => ({}),
    devicesUsed: () => 1,
    devicesAttached: () => 1,
    waitsMs: () => [1_500],
    metadataFiles: async () => 1,
  });
  return metrics;
}

/** The same, after everything has happened once: there is a series of each metric, with all its labels. */
export function buildBusyMetrics(): Metrics {
  const metrics = buildMetrics();
  const { own } = metrics;
  own.metadataWrites.inc();
  own.metadataWriteSeconds.observe(1);
  own.metadataWriteErrors.inc({ error_type: 'metadata-io' });
  own.metadataUpdateErrors.inc({ error_type: 'metadata-io' });
  own.callSeconds.observe({ operation: 'prepare', result: 'error' }, 1);
  own.claimErrors.inc({ operation: 'prepare', code: 'busy' });
  own.hookSeconds.observe({ hook: 'runPodSandbox', result: 'error' }, 1);
  own.hookErrors.inc({ hook: 'runPodSandbox', code: 'busy' });
  own.attachSeconds.observe({ labels: { result: 'ready', phase: 'total' }, value: 1 });
  own.certificateExpiry.set(1);
  own.certificateLifetime.set(1);
  own.attachErrors.inc({ code: 'vf-missing' });
  own.apiWriteErrors.inc({ object: 'status', code: 'busy' });
  return metrics;
}
