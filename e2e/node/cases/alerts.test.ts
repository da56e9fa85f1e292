import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createCertificate } from '../../../test/doubles/certificate.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import { AlertRecorder } from '../../alerts/recorder.ts';
import { hastyAlertRules } from '../../alerts/rules.ts';
import { Prometheus } from '../../release/prometheus-server.ts';
import { Bench, retry } from '../bench.ts';
import type { DriverProcess } from '../driver-process.ts';
import type { Sandbox } from '../pod.ts';
import { SmallDisk } from '../small-disk.ts';
import { addVfPod, expectClean, type VfPod } from '../vf-pod.ts';

/** A VF that no component moves into its pod. */
const vfOfOthers = { attach: 'observe', interfaceName: undefined, addresses: undefined };
const port = 9797;
/** One driver, which Prometheus takes for those of three nodes. */
const nodes = ['worker-1', 'worker-2', 'worker-3'];
/** For conditions: on a busy machine seconds become minutes. */
const patient = { timeout: 300_000, interval: 500 };

/** The rules of the chart with samples of a real driver: each alert fires for its reason, names the node, and ends with the reason. */
describe('alerts', { timeout: 900_000 }, () => {
  const rules = hastyAlertRules();
  let root: string;
  let plugins: SmallDisk;
  let cdi: SmallDisk;
  let bench: Bench;
  let driver: DriverProcess;
  let prometheus: Prometheus;
  let recorder: AlertRecorder;
  const seen = new Set(['NetdraManyNodes']);
  const file = (name: string) => join(root, name);

  beforeAll(async () => {
    root = mkdtempSync(join(tmpdir(), 'netdra-alerts-'));
    plugins = new SmallDisk(file('plugins'), 8 << 20);
    mkdirSync(file('tls'));
    mkdirSync(file('prometheus'));
    writePolicy();
    writeTls(0.1);
    scrape(nodes);
    const settings = {
      kubeletPluginsDir: plugins.path,
      httpAddress: `127.0.0.1:${port}`,
      httpTlsDir: file('tls'),
      inventoryPolicy: file('policy.yaml'),
      reconcileIntervalMs: 1_000,
    };
    bench = await Bench.start({ version: '2.1', logger: new RecordingLogger(), settings });
    cdi = new SmallDisk(bench.settings.cdiDir, 1 << 20);
    // It watches the directory that existed when it started.
    await bench.containerd.restart();
    driver = await bench.startProcess();
    const scrapeOfAll = {
      job_name: 'netdra',
      scrape_interval: '1s',
      scrape_timeout: '1s',
      scheme: 'https',
      tls_config: { insecure_skip_verify: true },
      file_sd_configs: [{ files: [file('targets.json')], refresh_interval: '1s' }],
    };
    prometheus = await Prometheus.start({ dir: file('prometheus'), rules, scrapes: [scrapeOfAll] });
    recorder = new AlertRecorder({ prometheus, rules, node: nodes[0]! });
  });
  beforeEach(() => recorder.begin());
  afterAll(async () => {
    await prometheus?.[Symbol.asyncDispose]();
    await driver?.stop();
    cdi?.[Symbol.dispose]();
    await bench?.[Symbol.asyncDispose]();
    plugins?.[Symbol.dispose]();
    rmSync(root, { recursive: true });
  });

  function writePolicy(rules = 'nics: []'): void {
    writeFileSync(file('policy.yaml'), `apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicy\n${rules}\n`);
  }

  function writeTls(days: number): void {
    const { certificate, key } = createCertificate('netdra', days);
    writeFileSync(file('tls/tls.key'), key);
    writeFileSync(file('tls/tls.crt'), certificate);
  }

  /** Has Prometheus scrape the driver as that of these nodes. */
  function scrape(names: readonly string[]): void {
    const targets = names.map((node) => ({ targets: [`127.0.0.1:${port}`], labels: { node } }));
    writeFileSync(file('targets.new'), JSON.stringify(targets));
    renameSync(file('targets.new'), file('targets.json'));
  }

  /** Names of the alerts that fire for a node. */
  async function firing(node = nodes[0]): Promise<string[]> {
    const samples = await prometheus.query(`ALERTS{alertstate="firing", node="${node}"}`);
    return samples.map(({ metric }) => metric.alertname ?? '');
  }

  /** @param cause is repeated meanwhile */
  async function fires(alert: string, cause?: () => Promise<unknown>): Promise<void> {
    const look = async () => {
      await cause?.();
      return await firing();
    };
    await expect.poll(look, patient).toContain(alert);
    await recorder.fired(alert);
    seen.add(alert);
  }

  async function ends(...alerts: string[]): Promise<void> {
    const left = async () => (await firing()).filter((alert) => alerts.includes(alert));
    await expect.poll(left, patient).toEqual([]);
    await recorder.ended(alerts);
  }

  /** Pods that wait, since no component moves their VFs into them. */
  async function startWaitingPods(count: number): Promise<[VfPod, Sandbox][]> {
    const pods: [VfPod, Sandbox][] = [];
    for (let index = 0; index < count; index++) {
      const pod = await addVfPod(bench, `waits-${index}`, index, vfOfOthers);
      pods.push([pod, await bench.startPod(pod)]);
    }
    return pods;
  }

  /** The UID of a pod leads from its wait in the metrics to its lines in the log and its events. */
  async function expectJoined(podUids: string[]): Promise<void> {
    const waits = `netdra_attach_duration_seconds_bucket{result="ended", phase="total", node="${nodes[0]}"}`;
    const exemplar = async () => (await prometheus.exemplars(waits)).map(({ pod_uid }) => pod_uid ?? '');
    const known = async () => (await exemplar()).find((uid) => podUids.includes(uid));
    await expect.poll(known, patient).toBeDefined();
    const uid = await known();
    const events = bench.api.objects<{ regarding: { uid?: string } }>('Event');
    expect(events.map(({ regarding }) => regarding.uid)).toContain(uid);
    expect(driver.log.map(({ podUid }) => podUid)).toContain(uid);
  }

  it('fire while all devices are allocated and pods wait for them', async () => {
    const pods = await startWaitingPods(8);
    const [[pod, sandbox]] = pods as [[VfPod, Sandbox]];
    const podUids = pods.map(([each]) => each.metadata.uid);
    await fires('NetdraHooksFail', () => bench.createContainer(sandbox, pod).catch(() => undefined));
    for (const alert of ['NetdraAttachFails', 'NetdraNoFreeDevices', 'NetdraPodsWait']) await fires(alert);
    await fires('NetdraSlow', async () => {
      const [next] = pods.shift() ?? [];
      if (next !== undefined) await bench.endPod(next);
    });
    for (const [each] of pods) await bench.endPod(each);
    await expectClean(bench);
    await expectJoined(podUids);
    await ends('NetdraHooksFail', 'NetdraAttachFails', 'NetdraNoFreeDevices', 'NetdraPodsWait', 'NetdraSlow');
  });

  it('fire while claims fail, and while the API server rejects ResourceSlices and claim status', async () => {
    const wrong = await addVfPod(bench, 'wrong', 0, { mtu: 1 });
    await fires('NetdraClaimsFail', () => bench.prepare(wrong).catch(() => undefined));
    await bench.endPod(wrong);
    {
      using _slices = bench.api.failNext(/^(POST|PUT|PATCH) .*resourceslices/, 403, {
        times: Number.POSITIVE_INFINITY,
      });
      using _status = bench.api.failNext(/^(POST|PUT|PATCH) .*(status|events)/, 500, {
        times: Number.POSITIVE_INFINITY,
      });
      // The slice tells their devices.
      const pods = [];
      for (let index = 0; index < 4; index++) pods.push(await addVfPod(bench, `ready-${index}`, index));
      const [slice] = bench.api.objects<{ metadata: { name: string } }>('ResourceSlice');
      bench.api.delete('ResourceSlice', slice!.metadata.name);
      for (const pod of pods) await bench.startPod(pod);
      await fires('NetdraSlicesNotPublished');
      await fires('NetdraApiWritesFail');
      for (const pod of pods) await bench.endPod(pod);
    }
    await ends('NetdraClaimsFail', 'NetdraSlicesNotPublished', 'NetdraApiWritesFail');
  });

  it('fire while the policy is invalid, a PF is down, and the certificate expires soon', async () => {
    const pf = `${bench.settings.simulatePrefix}0`;
    writePolicy('pfs: none');
    execFileSync('ip', ['link', 'set', pf, 'down']);
    for (const alert of ['NetdraPolicyRejected', 'NetdraDevicesUnhealthy', 'NetdraCertificateExpires']) {
      await fires(alert);
    }
    writePolicy();
    execFileSync('ip', ['link', 'set', pf, 'up']);
    writeTls(90);
    await ends('NetdraPolicyRejected', 'NetdraDevicesUnhealthy', 'NetdraCertificateExpires');
  });

  it('fire while a sysfs file of a device has invalid content', async () => {
    const bus = join(plugins.path, testDriver, 'simulated/bus/pci/devices');
    const vf = realpathSync(join(bus, readdirSync(bus).at(-1) ?? ''));
    // The driver reads what cannot change only once of a device, which it knows by its directory.
    cpSync(vf, `${vf}-new`, { recursive: true, verbatimSymlinks: true });
    writeFileSync(`${vf}-new/vendor`, 'unknown\n');
    renameSync(vf, `${vf}-before`);
    renameSync(`${vf}-new`, vf);
    await fires('NetdraDevicesUnreadable');
    renameSync(vf, `${vf}-new`);
    renameSync(`${vf}-before`, vf);
    rmSync(`${vf}-new`, { recursive: true });
    await ends('NetdraDevicesUnreadable');
  });

  it('fire while files cannot be written on the node', async () => {
    const pod = await addVfPod(bench, 'running', 0);
    const { netnsPath } = await bench.startPod(pod);
    const next = await addVfPod(bench, 'next', 1);
    cdi.setReadOnly(true);
    await expect(bench.prepare(next)).rejects.toThrow(/read-only/);
    await fires('NetdraClaimsStuck');
    plugins.fill(0);
    let last = 0;
    // Each change is one that the file has to follow.
    await fires('NetdraMetadataWritesFail', async () => {
      last = (last % 200) + 1;
      const address = `198.51.100.${last}/24`;
      execFileSync('nsenter', [`--net=${netnsPath}`, 'ip', 'address', 'add', address, 'dev', 'net1']);
    });
    plugins.empty();
    cdi.setReadOnly(false);
    await retry(() => bench.endAllPods());
    await ends('NetdraClaimsStuck', 'NetdraMetadataWritesFail');
  });

  it('fire while the driver is missing, not scraped, or not registered with the runtime or kubelet', async () => {
    const { kubeletRegistryDir } = bench.settings;
    await fires('NetdraReconnects', async () => {
      const [socket = ''] = readdirSync(kubeletRegistryDir).filter((name) => name.startsWith(testDriver));
      const before = bench.kubelet.attempts.length;
      renameSync(join(kubeletRegistryDir, socket), file('socket'));
      await expect.poll(() => bench.kubelet.plugins(testDriver), patient).toEqual([]);
      renameSync(file('socket'), join(kubeletRegistryDir, socket));
      await expect.poll(() => bench.kubelet.attempts.length, patient).toBeGreaterThan(before);
      await bench.kubelet.waitForDriver(testDriver, patient.timeout);
    });
    await bench.containerd.stop();
    await fires('NetdraNotConnected');
    // More than a tenth of the nodes, and three of them.
    const ofAll = () => prometheus.query('ALERTS{alertname="NetdraManyNodes", alertstate="firing"}');
    await expect.poll(ofAll, patient).toHaveLength(1);
    await recorder.fired('NetdraManyNodes');
    await bench.containerd.start();
    await ends('NetdraNotConnected', 'NetdraReconnects');
    await expect.poll(ofAll, patient).toEqual([]);
    await recorder.endedOfAll('NetdraManyNodes', 'NetdraNotConnected');
    await driver.stop();
    await fires('NetdraDown');
    driver = await bench.startProcess();
    await ends('NetdraDown');
    scrape(nodes.slice(1));
    await fires('NetdraNoSeries');
    expect(await firing('worker-2')).not.toContain('NetdraNoSeries');
    scrape(nodes);
    await ends('NetdraNoSeries');
  });

  /** What only hardware does: e2e/vm/cases/alerts.test.ts. */
  const ofHardware = ['NetdraDevicesNotRestored', 'NetdraDevicesHung'];

  it('are all tested here, except alerts that need hardware', () => {
    const names = rules.groups.flatMap((group) => group.rules.map(({ alert }) => alert));
    expect(names.filter((name) => !ofHardware.includes(name) && !seen.has(name))).toEqual([]);
  });
});
