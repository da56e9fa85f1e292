import { dirname, join } from 'node:path';
import type { V1ConfigMap, V1EndpointSlice, V1Pod, V1Service } from '@kubernetes/client-node';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { run } from '../../../scripts/packages/run.ts';
import type { StoredView } from '../../../src/driver/nodeview/index.ts';
import { layoutNames } from '../../../src/framework/metadata/index.ts';
import { listFolder } from '../../node/host-state.ts';
import { makeRelease } from '../../release/artifacts.ts';
import { pushChart } from '../../release/chart.ts';
import { hostArchitecture, locateDriverImage } from '../../release/driver-image.ts';
import { valueArguments } from '../../release/helm.ts';
import { dashboardExpressions } from '../../release/prometheus.ts';
import { Prometheus } from '../../release/prometheus-server.ts';
import { driverNamespace } from '../node/driver.ts';
import { nodeName, nodePaths } from '../node/real-node.ts';
import { anyFieldsDefinition } from '../objects.ts';
import { type PrometheusRule, type ServiceMonitor, scrapesOf } from '../prometheus.ts';
import { bandwidthPolicy, describeBandwidth } from './bandwidth.ts';
import { describeLayouts } from './layouts.ts';
import { type ReleaseSite, waitArguments } from './release-site.ts';

const cacheDir = cacheFolder(process.env);
const monitoring = ['ServiceMonitor', 'PrometheusRule'].map((kind) =>
  anyFieldsDefinition('monitoring.coreos.com', 'v1', kind),
);
const kinds =
  'daemonsets,pods,services,serviceaccounts,configmaps,resourceclaims,resourceclaimtemplates,servicemonitors,prometheusrules';
const clusterKinds =
  'clusterroles,clusterrolebindings,customresourcedefinitions,deviceclasses,validatingadmissionpolicies,validatingadmissionpolicybindings';
const settled = { timeout: 30_000, interval: 500 };
const nextTag = 'e2e-next';

/** The life of a release by Helm 3. */
export function describeRelease(get: () => ReleaseSite): void {
  describe('a release', () => {
    let chart: string;
    const helm = (...args: string[]) => get().helm(...args);
    const kubectl = (...args: string[]) => get().kubectl(...args);
    const holder = () => get().find<V1Pod>('pod', 'holder');
    const offered = () =>
      kubectl('get', 'resourceslices', '--output', 'jsonpath={.items[*].spec.devices[*].name}').split(' ');
    const driverImage = () =>
      kubectl(
        'get',
        'pods',
        '--selector',
        'app.kubernetes.io/name=netdra',
        '--output',
        'jsonpath={.items[*].spec.containers[*].image}',
      );

    beforeAll(() => {
      const { node } = get();
      expect(get().apply('monitoring', { apiVersion: 'v1', kind: 'List', items: monitoring })).toContain('created');
      const names = monitoring.map(({ metadata }) => `crd/${metadata.name}`);
      expect(kubectl('wait', '--for=condition=Established', ...names, '--timeout=30s')).toContain('condition met');
      const images = { [hostArchitecture()]: locateDriverImage(cacheDir) };
      const release = makeRelease(join(node.dir, 'release'), { cacheDir, images });
      run('sha256sum', ['--check', '--strict', release.sums], { cwd: dirname(release.sums) });
      node.registry.push(release.images[0]!, `netdra:${nextTag}`);
      chart = pushChart(cacheDir, release.chart, node.registry.address, 'helm-3');
    });

    afterEach(() => get().release('holder'));

    it('is installed from a registry and offers VFs', async () => {
      const values = valueArguments({
        ...get().driver.values,
        'kubeletPlugin.vfTraffic': true,
        'kubeletPlugin.metadataLayouts': layoutNames,
        inventoryPolicy: bandwidthPolicy,
        serviceMonitor: { enabled: true, interval: '1s' },
        prometheusRule: { enabled: true, runbookUrlPrefix: 'https://docs.example.com/' },
      });
      helm('install', 'netdra', chart, '--plain-http', '--create-namespace', ...values, ...waitArguments);
      await expect.poll(offered).toHaveLength(4);
    });

    it('passes its helm test, whose pod reads the metadata file of its VF, and leaves no test objects', () => {
      expect(helm('test', 'netdra')).toMatch(/TEST SUITE: +netdra-test\n.*\n.*\nPhase: +Succeeded/);
      const selector = ['--selector', 'app.kubernetes.io/name=netdra-test'];
      expect(kubectl('get', 'pods,resourceclaimtemplates', ...selector)).toContain('No resources found');
    });

    it('is scraped by Prometheus, with the traffic of a pod, and fires no alert', async () => {
      const { node } = get();
      get().holdReady('holder');
      const find = <T>(kind: string) => get().find<T>(kind, 'netdra');
      const list = <T>(kind: string) => JSON.parse(kubectl('get', kind, '--output', 'json')).items as T[];
      const rule = find<PrometheusRule>('prometheusrule');
      const scrapes = scrapesOf(
        find<ServiceMonitor>('servicemonitor'),
        list<V1Service>('services'),
        list<V1EndpointSlice>('endpointslices'),
      );
      await using prometheus = await Prometheus.start({ dir: node.dir, rules: rule.spec, scrapes });
      const query = async (expression: string) =>
        (await prometheus.query(expression)).map(({ metric, value }) => [metric.node, Number(value[1])]);

      await expect.poll(() => query('up{job="netdra"}'), settled).toEqual([[nodeName, 1]]);
      expect(await query('netdra_devices_offered')).toEqual([[nodeName, 4]]);
      const labels = '{namespace="netdra", pod="holder", claim="holder", interface!=""}';
      const sent = async () =>
        (await query(`netdra_vf_transmit_bytes_total${labels}`)).map(([, bytes]) => Number(bytes) > 0);
      await expect.poll(sent, settled).toEqual([true]);
      const ok = rule.spec.groups.flatMap(({ rules }) => rules.map(({ alert }) => [alert, 'ok']));
      await expect.poll(() => prometheus.alerts(), settled).toEqual(Object.fromEntries(ok));
      expect(await prometheus.query('ALERTS{alertstate="firing"}')).toEqual([]);
      for (const expression of dashboardExpressions()) await prometheus.query(expression);
    });

    it("is upgraded to another image and rolled back while a running pod's VF stays unchanged", async () => {
      const { node } = get();
      const image = `${node.registry.address}/netdra`;
      get().holdReady('holder');
      const before = holder();
      const links = () => kubectl('exec', 'holder', '--', 'ip', '-o', 'link');
      const linksBefore = links();
      helm(
        'upgrade',
        'netdra',
        chart,
        '--plain-http',
        '--reset-then-reuse-values',
        `--set=image.tag=${nextTag}`,
        ...waitArguments,
      );
      // The old instance is still ending when the new one is ready.
      await expect.poll(driverImage, settled).toBe(`${image}:${nextTag}`);
      helm('rollback', 'netdra', ...waitArguments);
      await expect.poll(driverImage, settled).toBe(`${image}:e2e`);
      expect(helm('history', 'netdra')).toMatch(/deployed .*Rollback to 1/);
      expect(holder().metadata?.uid).toBe(before.metadata?.uid);
      // Not the whole status: the kubelet calls the health of a device unknown between two instances of the driver.
      const running = ({ status }: V1Pod) =>
        status?.containerStatuses?.map(({ containerID, restartCount, ready }) => ({
          containerID,
          restartCount,
          ready,
        }));
      expect(running(holder())).toEqual(running(before));
      expect(links()).toBe(linksBefore);
    });

    it('shows the VF of a claim in kubectl, and reports a rejected policy there until it is corrected', async () => {
      get().holdReady('holder');
      const read = () => get().find<{ status: StoredView }>('nodenetworkdevices', nodeName).status;
      const claims = [{ namespace: driverNamespace, name: 'holder', devices: [expect.any(String)] }];
      const vfs = { offered: 4, inUse: 1, withheld: 0, hung: 0 };
      await expect.poll(read, settled).toMatchObject({ claims, pfs: [{ link: 'Up', numVfs: 4, vfs }], withheld: [] });
      const { data } = get().find<V1ConfigMap>('configmap', 'netdra-inventory');
      const name = 'inventory-policy.yaml';
      const write = (text = '') => {
        const patch = JSON.stringify({ data: { [name]: text } });
        expect(kubectl('patch', 'configmap', 'netdra-inventory', '--type=merge', '--patch', patch)).toContain(
          'patched',
        );
      };
      const until = (condition: string) => {
        return kubectl('wait', `--for=condition=${condition}`, `nnd/${nodeName}`, '--timeout=90s');
      };
      write(`${data?.[name]}nonsense: true\n`);
      expect(until('PolicyAccepted=false')).toContain('condition met');
      expect(kubectl('get', 'nnd')).toMatch(/\n\S+ +0\.1\.0 +4 +1 +0 +Refused +/);
      expect(read().conditions[0]?.message).toMatch(/the last valid policy stays in force: .*nonsense.*\(line \d+\)/);
      write(data?.[name]);
      expect(until('PolicyAccepted')).toContain('condition met');
    });

    it('applies a NetworkDevicePolicy, and reports a rejected one in a condition and a metric', async () => {
      get().holdReady('holder');
      const before = holder();
      const view = () => get().find<{ status: StoredView }>('nodenetworkdevices', nodeName).status;
      const apply = (rule: object) => {
        const head = { apiVersion: 'netdra.dev/v1alpha1', kind: 'NetworkDevicePolicy', metadata: { name: 'some' } };
        const policy = { ...head, spec: { nodeSelector: {}, pfs: [{ select: {}, ...rule }] } };
        expect(get().apply('policy', policy)).toMatch(/created|configured/);
      };
      const selector = ['--selector', 'app.kubernetes.io/name=netdra'];
      const name = kubectl('get', 'pods', ...selector, '--output', 'jsonpath={.items[0].metadata.name}');
      const raw = `/api/v1/namespaces/${driverNamespace}/pods/${name}:9797/proxy/metrics`;
      const isValid = () => /^netdra_policy_valid\S* (\d)$/m.exec(kubectl('get', '--raw', raw))?.[1];
      const file = { source: '/etc/netdra/inventory-policy.yaml' };
      expect([view().policy, isValid()]).toEqual([expect.objectContaining(file), '1']);

      apply({ vfs: '0-1' });
      await expect.poll(() => offered().length, settled).toBeLessThan(4);
      const inForce = offered().length;
      apply({ vfs: '90' });
      // Looked at twice only: there are 10 s between two writes.
      const message = expect.stringContaining('the rules select no VF of this node');
      const refused = { status: 'False', reason: 'Refused', message };
      await expect.poll(() => view().conditions[0], settled).toMatchObject(refused);
      expect(view()).toMatchObject({ policy: { name: 'some', generation: 1 }, devices: { offered: inForce } });
      expect(view().policy).not.toHaveProperty('source');
      expect([offered().length, isValid()]).toEqual([inForce, '0']);
      apply({ vfs: '0-2' });
      await expect.poll(isValid, settled).toBe('1');
      kubectl('delete', 'ndp', 'some');
      // A write between the change of the policy and the scan that follows still has the earlier number.
      const inForceNow = () => {
        const { policy, devices, conditions } = view();
        return { policy, offered: devices.offered, accepted: conditions[0]?.status };
      };
      // The deletion counts after 10 to 20 s, and 10 s may pass until the next write.
      const later = { ...settled, timeout: 90_000 };
      await expect.poll(inForceNow, later).toMatchObject({ policy: file, offered: 4, accepted: 'True' });
      expect(holder().metadata?.uid).toBe(before.metadata?.uid);
      expect(holder().status?.containerStatuses).toEqual(before.status?.containerStatuses);
    });

    describeBandwidth(get);
    describeLayouts(get);

    it('leaves its state on the node when it is uninstalled', async () => {
      const { node } = get();
      helm('uninstall', 'netdra', ...waitArguments);
      const selector = ['--selector', 'app.kubernetes.io/instance=netdra'];
      // Helm does not wait for objects that controllers remove.
      await expect.poll(() => kubectl('get', kinds, ...selector), settled).toContain('No resources found');
      // Its objects would go with it.
      const kept = 'customresourcedefinition.apiextensions.k8s.io/networkdevicepolicies.netdra.dev';
      expect(node.kubectl('get', clusterKinds, ...selector, '--output', 'name').trim()).toBe(kept);
      expect(kubectl('get', 'secrets', '--selector', 'owner=helm')).toContain('No resources found');
      expect(node.driverPids()).toEqual([]);
      const dir = join(nodePaths.kubeletPlugins, 'sriov.netdra.dev');
      expect(listFolder(dir)).toContain('state.db');
      expect(
        [join(dir, 'dra-device-metadata'), `${nodePaths.kubeletPlugins}_registry`, nodePaths.cdi].flatMap(listFolder),
      ).toEqual([]);
      // The kubelet deletes the slices of a driver that has been absent for half a minute.
      const slices = () => node.kubectl('get', 'resourceslices');
      await expect.poll(slices, { timeout: 60_000, interval: 500 }).toContain('No resources found');
    });
  });
}
