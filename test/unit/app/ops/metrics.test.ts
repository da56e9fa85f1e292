import { describe, expect, it } from 'vitest';
import { Metrics } from '../../../../src/app/ops/index.ts';
import type { DeviceCounts } from '../../../../src/driver/devices/device-counts.ts';
import { shared } from '../../../../src/lib/shared.ts';
import { parseScrape } from '../../../doubles/prometheus.ts';
import { facts } from './node-facts.ts';

function create() {
  return new Metrics({ driver: 'sriov.example', version: '1.2.3', metadataEnabled: true });
}

async function scrape(metrics: Metrics): Promise<Map<string, number>> {
  return parseScrape((await metrics.render()).text);
}

describe('Metrics', () => {
  it('exports the metrics that KEP-5304 names, starting at 0', async () => {
    const metrics = create();
    metrics.readFrom({ ...facts, devicesOffered: () => 3, metadataFiles: async () => 2 });
    const values = await scrape(metrics);
    expect(values.get('dra_metadata_feature_enabled')).toBe(1);
    expect(values.get('dra_metadata_writes_total')).toBe(0);
    for (const step of ['write', 'update']) {
      expect(values.get(`dra_metadata_${step}_errors_total{error_type="metadata-io"}`)).toBe(0);
    }
    expect(values.get('dra_metadata_write_duration_seconds_count')).toBe(0);
    expect(values.get('dra_metadata_files_active')).toBe(2);
    expect(values.get('netdra_devices_offered')).toBe(3);
  });

  it('names the metrics that cannot be read, and exports all others', async () => {
    const metrics = create();
    let failure: Error | undefined;
    const read = <T>(value: T): T => {
      if (failure !== undefined) throw failure;
      return value;
    };
    metrics.own.connected.set({ peer: 'nri' }, 1);
    metrics.readFrom({
      ...facts,
      devicesOffered: () => 3,
      devicesAttached: () => read(2),
      claimsByState: () => read({ prepared: 1 }),
      metadataFiles: async () => read(4),
      vfTraffic: async () => read({ samples: [], missing: { limit: 0, unreadable: 1 }, failures: [] }),
    });
    const ofStore = [
      'netdra_devices_attached',
      'netdra_claims{state="prepared"}',
      'dra_metadata_files_active',
      'netdra_vf_traffic_missing{reason="unreadable"}',
    ];
    const before = await scrape(metrics);
    expect(ofStore.map((name) => before.get(name))).toEqual([2, 1, 4, 1]);
    const unreadable = (page: Map<string, number>) =>
      [...page.keys()].filter((key) => key.includes('unreadable{metric='));
    expect(unreadable(before)).toEqual([]);
    failure = new Error('the store cannot be read');
    const without = await scrape(metrics);
    expect(ofStore.map((name) => without.get(name))).toEqual([undefined, undefined, undefined, undefined]);
    const named = ofStore.map((name) => `netdra_metrics_unreadable{metric="${name.replace(/\{.*/, '')}"}`);
    expect(named.map((name) => without.get(name))).toEqual([1, 1, 1, 1]);
    // Beside these the traffic itself, in eight metrics.
    expect(unreadable(without)).toHaveLength(named.length + 8);
    expect(without.get('netdra_connected{peer="nri"}')).toBe(1);
    expect(without.get('netdra_devices_offered')).toBe(3);
    failure = undefined;
    const after = await scrape(metrics);
    expect(ofStore.map((name) => after.get(name))).toEqual([2, 1, 4, 1]);
    expect(unreadable(after)).toEqual([]);
  });

  it('exports how many pods wait for their VFs, and the longest wait', async () => {
    const metrics = create();
    let waits = [1_500, 40_000, 20];
    metrics.readFrom({ ...facts, waitsMs: () => waits });
    const names = ['netdra_sandboxes_waiting', 'netdra_sandbox_wait_max_seconds'];
    const before = await scrape(metrics);
    expect(names.map((name) => before.get(name))).toEqual([3, 40]);
    waits = [];
    const after = await scrape(metrics);
    expect(names.map((name) => after.get(name))).toEqual([0, 0]);
  });

  it('exports the driver name, version and Node.js version', async () => {
    const { text } = await create().render();
    expect(text).toMatch(
      /netdra_build_info\{version="1\.2\.3",nodejs_version="\d+\.[\d.]+",driver_name="sriov\.example"\} 1/,
    );
  });

  it('exports the same series in the OpenMetrics and the Prometheus format, in any order of requests', async () => {
    const metrics = create();
    metrics.readFrom({ ...facts, claimsByState: () => ({ prepared: 2 }) });
    const seriesOf = async (accept?: string) => {
      const { contentType, text } = await metrics.render(accept);
      const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
      return { contentType, text, series: lines.map((line) => line.replace(/ \S+$/, '')) };
    };
    const [before, open, after] = [
      await seriesOf(),
      await seriesOf('application/openmetrics-text;version=1.0.0,*/*;q=0.1'),
      await seriesOf(),
    ];
    expect(open.contentType).toContain('application/openmetrics-text; version=1.0.0');
    expect(open.text).toMatch(/\n# TYPE netdra_connects counter\nnetdra_connects_total\{[\s\S]*\n# EOF\n$/);
    expect(open.series).toEqual(before.series);
    expect([after.contentType, after.series]).toEqual([before.contentType, before.series]);
  });

  it('exports the number of claims in each state, and drops a state that no claim is in', async () => {
    const metrics = create();
    let states: Record<string, number> = { prepared: 2, unpreparing: 1 };
    metrics.readFrom({ ...facts, claimsByState: () => states });
    expect((await scrape(metrics)).get('netdra_claims{state="unpreparing"}')).toBe(1);
    states = { prepared: 2 };
    const values = await scrape(metrics);
    expect(values.get('netdra_claims{state="unpreparing"}')).toBe(0);
    expect(values.get('netdra_claims{state="prepared"}')).toBe(2);
  });

  it('counts unallocatable devices by reason, and drops a reason that no device has any more', async () => {
    const metrics = create();
    let withheld: Record<string, number> = { unrestored: 0, hung: 1, 'not-selected': 4 };
    let isPolicyValid = true;
    const vfs = { offered: 8, used: 2, free: 5, withheld: 1, hung: 1 };
    let pfs: DeviceCounts['pfs'] = [
      { pf: 'ens1f0', pciAddress: '0000:3b:00.0', hasCarrier: false, vfs },
      { pf: '0000:3c:00.0', pciAddress: '0000:3c:00.0', vfs: { ...vfs, offered: 0 } },
    ];
    let reads = 0;
    const deviceCounts = () => {
      reads += 1;
      return { withheld, inCondition: { 'no-carrier': 7, hung: 0 }, free: 5, pfs };
    };
    const more = { deviceCounts, isPolicyValid: () => isPolicyValid, deviceProblems: () => 2 };
    metrics.readFrom({ ...facts, ...more });
    const before = await scrape(metrics);
    expect(reads).toBe(1);
    expect(before.get('netdra_devices_withheld{reason="not-selected"}')).toBe(4);
    expect(before.get('netdra_devices_withheld{reason="unrestored"}')).toBe(0);
    const unhealthy = ['no-carrier', 'hung'].map((name) => before.get(`netdra_devices_unhealthy{condition="${name}"}`));
    expect(unhealthy).toEqual([7, 0]);
    expect([before.get('netdra_device_problems'), before.get('netdra_policy_valid')]).toEqual([2, 1]);
    const ofPf = 'pf="ens1f0",pf_address="0000:3b:00.0"';
    expect([before.get(`netdra_pf_carrier{${ofPf}}`), before.get(`netdra_pf_vfs{${ofPf},state="used"}`)]).toEqual([
      0, 2,
    ]);
    const carriers = (values: Map<string, number>) =>
      [...values.keys()].filter((name) => name.startsWith('netdra_pf_carrier'));
    expect(carriers(before)).toHaveLength(1);
    withheld = { unrestored: 1, hung: 0 };
    pfs = [];
    isPolicyValid = false;
    const after = await scrape(metrics);
    expect(after.get('netdra_devices_withheld{reason="unrestored"}')).toBe(1);
    expect(after.has('netdra_devices_withheld{reason="not-selected"}')).toBe(false);
    expect(after.get('netdra_policy_valid')).toBe(0);
    expect(carriers(after)).toEqual([]);
  });

  it('exports the traffic of VFs in pods if that is enabled, and reads it once per scrape', async () => {
    const off = create();
    off.readFrom(facts);
    expect((await off.render()).text).not.toContain('netdra_vf_');
    const metrics = create();
    const labels = { device: 'vf-0', namespace: 'apps', pod: 'web-0', claim: 'fast-net', interface: 'net1' };
    let samples = [{ labels, counters: { rxBytes: 1000, txDropped: 2 } }];
    let reads = 0;
    const vfTraffic = shared(async () => {
      reads++;
      return { samples, missing: { limit: 1, unreadable: 0 }, failures: [] };
    });
    metrics.readFrom({ ...facts, vfTraffic });
    const series = (name: string) =>
      `netdra_vf_${name}_total{device="vf-0",namespace="apps",pod="web-0",claim="fast-net",interface="net1"}`;
    const values = await scrape(metrics);
    expect([values.get(series('receive_bytes')), values.get(series('transmit_dropped'))]).toEqual([1000, 2]);
    expect(values.get('netdra_vf_traffic_missing{reason="limit"}')).toBe(1);
    expect(reads).toBe(1);
    // What is unknown is not 0, and pods that are gone have no series.
    expect([...values.keys()].filter((name) => name.startsWith('netdra_vf_receive'))).toHaveLength(1);
    samples = [];
    expect([...(await scrape(metrics)).keys()].filter((name) => name.includes('web-0'))).toEqual([]);
  });

  it('reads process metrics on each scrape', async () => {
    const metrics = create();
    const first = await scrape(metrics);
    for (const endsAt = performance.now() + 30; performance.now() < endsAt; );
    const second = await scrape(metrics);
    expect(second.get('process_cpu_seconds_total')).toBeGreaterThan(first.get('process_cpu_seconds_total')!);
    expect(first.get('process_resident_memory_bytes')).toBeGreaterThan(1e7);
    expect(first.get('process_open_fds')).toBeGreaterThan(2);
  });
});
