import { execFileSync } from 'node:child_process';
import { cpSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import {
  loadYaml,
  type V1DaemonSet,
  type V1DeviceClass,
  type V1NetworkPolicy,
  type V1Pod,
} from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { policySchema } from '../../deploy/helm/values-schema.ts';
import {
  chartDir,
  packageChart,
  parseObjects,
  pushChart,
  renderChart,
  renderManifest,
  renderObjects,
} from '../../e2e/release/chart.ts';
import { type HelmVersion, helmVersions, runHelm } from '../../e2e/release/helm.ts';
import { startRegistry } from '../../e2e/release/registry.ts';
import packageInfo from '../../package.json' with { type: 'json' };
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { closedFields } from '../../src/driver/model/index.ts';
import { defaultHooklessHandlers, startGateModes } from '../../src/framework/metadata/gate/index.ts';
import { layoutNames, metadataVersions } from '../../src/framework/metadata/index.ts';
import { parseSimulation } from '../../src/instance/parse-flags.ts';
import { tempDir } from '../doubles/temp-dir.ts';
import { find, podOf, problemsOf, read } from './chart-objects.ts';

const schema = JSON.parse(read('helm/netdra/values.schema.json'));

const everythingOn = {
  imagePullSecrets: [{ name: 'registry' }],
  serviceAccount: { annotations: { a: 'b' } },
  kubeletPlugin: {
    metadataLayouts: [...layoutNames],
    simulate: '2x4',
    extraArgs: ['--simulate-prefix=x'],
    nodeSelector: { sriov: 'true' },
    affinity: { nodeAffinity: {} },
    podAnnotations: { a: 'b' },
    podLabels: { c: 'd' },
    seLinuxOptions: { type: 'spc_t' },
  },
  http: { host: '127.0.0.1', tls: { secretName: 'netdra-tls' } },
  cni: { enabled: true },
  inventoryPolicy: { pfs: [{ select: { vendor: '8086' }, numVfs: 8 }] },
  serviceMonitor: { enabled: true, labels: { release: 'prometheus' } },
  prometheusRule: { enabled: true },
  addressPools: { enabled: true },
  sriovOperator: { enabled: true },
  networkPolicy: { enabled: true },
  openshift: { securityContextConstraints: true },
};

describe('the chart', () => {
  it('renders deploy/manifests/netdra.yaml', () => {
    expect(read('manifests/netdra.yaml')).toBe(renderManifest());
  });

  it.each(helmVersions)('passes helm lint, and renders deploy/manifests/netdra.yaml, with %s', (version) => {
    const cacheDir = cacheFolder(process.env);
    const lint = runHelm(cacheDir, ['lint', '--strict', chartDir], { version });
    expect(lint).toContain('0 chart(s) failed');
    expect(lint).not.toMatch(/\[(INFO|WARNING)\]/);
    expect(renderObjects({ version })).toEqual(parseObjects(read('manifests/netdra.yaml')));
  });

  it.each(helmVersions)(
    'is packaged, pushed to a registry and rendered from there by %s',
    async (version: HelmVersion) => {
      using dir = tempDir();
      const cacheDir = cacheFolder(process.env);
      await using registry = await startRegistry({ cacheDir });
      const archive = packageChart(cacheDir, dir.path, version);
      // In one folder, the archive of the npm package would replace it.
      expect(basename(archive)).not.toBe(`${packageInfo.name}-${packageInfo.version}.tgz`);
      const files = execFileSync('tar', ['-tzf', archive], { encoding: 'utf8' });
      for (const file of ['README.md', 'templates/NOTES.txt']) expect(files).toContain(`/${file}\n`);
      const chart = pushChart(cacheDir, archive, registry.address, version);
      expect(renderChart({ version, chart })).toBe(renderChart({ version }));
    },
  );

  it('has a helm test pod that reads the metadata file in any layout and matches no chart selector', () => {
    const testPod = (values: Record<string, unknown>) => {
      const objects = parseObjects(renderChart({ values, withTests: true }));
      return objects.find(({ kind }) => kind === 'Pod') as V1Pod | undefined;
    };
    const pathOf = (metadataLayouts: string[]) =>
      testPod({ kubeletPlugin: { metadataLayouts } })?.spec?.containers[0]?.args?.[1];
    const v1 =
      '/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/nic/vf/sriov.netdra.dev-metadata.json';
    expect(pathOf(['v1', 'kep'])).toBe(v1);
    expect(pathOf(['kep'])).toBe('/var/run/dra-device-attributes/nic/vf/sriov.netdra.dev-metadata.json');
    expect(pathOf(['attributes-json'])).toBeUndefined();
    expect(testPod({ kubeletPlugin: { enableDeviceMetadata: false } })).toBeUndefined();
    expect(testPod({ deviceClasses: { kernel: { create: false } } })).toBeUndefined();
    const selector = find<V1DaemonSet>('DaemonSet', {}).spec?.selector.matchLabels;
    expect(testPod({})?.metadata?.labels).not.toMatchObject(selector ?? {});
  });

  it('can render a class for whole NICs without settings that need a PF', () => {
    const objects = renderObjects({ values: { deviceClasses: { nic: { create: true } } } });
    const { spec } = objects.find(({ metadata }) => metadata?.name === 'netdra-nic') as V1DeviceClass;
    const expression = 'device.driver == "sriov.netdra.dev" && device.attributes["sriov.netdra.dev"].kind == "nic"';
    expect(spec).toEqual({ extendedResourceName: 'netdra.dev/nic', selectors: [{ cel: { expression } }] });
  });

  it.each(helmVersions)('omits settings that need a PF from a class whose vf is null, for %s', (version) => {
    const vfOf = (vf: object | null) => {
      const objects = renderObjects({ version, values: { deviceClasses: { kernel: { vf }, dpdk: { vf } } } });
      const classes = objects.filter(({ kind }) => kind === 'DeviceClass') as V1DeviceClass[];
      return classes.map(({ spec }) => spec.config?.[0]?.opaque?.parameters.vf);
    };
    expect(vfOf(null)).toEqual([undefined, undefined]);
    // Why the pages do not say so of an empty one.
    expect(vfOf({})).toEqual([
      { spoofCheck: true, trust: false },
      { spoofCheck: true, trust: false },
    ]);
  });

  it.each(helmVersions)('can be a conditional dependency of another chart, for %s', (version) => {
    using dir = tempDir();
    cpSync(chartDir, join(dir.path, 'charts/netdra'), { recursive: true });
    const { version: chartVersion } = packageInfo;
    const dependency = { name: 'netdra-chart', alias: 'netdra', version: chartVersion, condition: 'netdra.enabled' };
    const chart = { apiVersion: 'v2', name: 'platform', version: '1.0.0', dependencies: [dependency] };
    writeFileSync(join(dir.path, 'Chart.yaml'), JSON.stringify(chart));
    const render = (...values: string[]) => {
      const settings = ['global.registry=registry.example.com', ...values].flatMap((value) => ['--set', value]);
      return parseObjects(
        runHelm(cacheFolder(process.env), ['template', 'platform', dir.path, ...settings], { version }),
      );
    };
    const names = (...values: string[]) => render(...values).map(({ kind, metadata }) => `${kind} ${metadata?.name}`);
    expect(names('netdra.enabled=true')).toContain('DaemonSet platform');
    expect(names('netdra.enabled=false')).toEqual([]);
    // The chart itself has objects of the name of the release.
    const renamed = names('netdra.enabled=true', 'netdra.fullnameOverride=sriov');
    expect(renamed).toEqual(expect.arrayContaining(['DaemonSet sriov', 'ServiceAccount sriov']));
    expect(renamed.filter((name) => name.includes('platform'))).toEqual([]);
  });

  it('allows the driver to reach the API server at the configured ports', () => {
    const ports = (values: object) => {
      const { spec } = find<V1NetworkPolicy>('NetworkPolicy', { networkPolicy: { enabled: true, ...values } });
      return spec?.egress?.flatMap((rule) => rule.ports?.map(({ port }) => port));
    };
    expect(ports({})).toEqual([443, 6443, 53, 53]);
    expect(ports({ apiServerPorts: [16443] })).toEqual([16443, 53, 53]);
  });

  it('has exactly the default values that its schema describes, and they are valid', () => {
    const values = loadYaml<Record<string, unknown>>(read('helm/netdra/values.yaml'));
    expect(z.fromJSONSchema(schema).safeParse(values).error).toBeUndefined();
    const inSchema = (each: { properties?: Record<string, object> }, path = ''): string[] =>
      Object.entries(each.properties ?? {}).flatMap(([key, inner]) => {
        const nested = inSchema(inner, `${path}${key}.`);
        // By default the chart sets no policy, so the values have none of its fields.
        return nested.length > 0 && key !== 'inventoryPolicy' ? nested : [`${path}${key}`];
      });
    const known = inSchema(schema);
    const inValues = (value: unknown, path: string): string[] =>
      known.includes(path) || typeof value !== 'object' || value === null
        ? [path]
        : Object.entries(value).flatMap(([key, inner]) => inValues(inner, path === '' ? key : `${path}.${key}`));
    expect(inValues(values, '').sort()).toEqual(known.filter((path) => path !== 'enabled').sort());
  });

  it('has a values schema with exactly the choices that the driver accepts', () => {
    const { metadataLayouts, metadataVersions: versions, ...others } = schema.properties.kubeletPlugin.properties;
    const { startGate, openClaimFields } = others;
    expect([...metadataLayouts.items.enum].sort()).toEqual([...layoutNames].sort());
    expect(versions.items.enum).toEqual([...metadataVersions]);
    expect([...startGate.enum].sort()).toEqual([...startGateModes].sort());
    expect([...openClaimFields.items.enum].sort()).toEqual([...closedFields].sort());
  });

  it.each([
    ['', undefined],
    [8, '8'],
    ['8', '8'],
    ['8x128', '8x128'],
  ])('accepts %j as the number of simulated VFs, as the driver does', (simulate, text) => {
    const flag = podOf({ kubeletPlugin: { simulate } })?.containers[0]?.args?.find((arg) =>
      arg.startsWith('--simulate='),
    );
    expect(flag).toBe(text && `--simulate=${text}`);
    if (text !== undefined) expect(() => parseSimulation(text)).not.toThrow();
  });

  it("has the driver's InventoryPolicy schema in its values schema", () => {
    expect(schema.properties.inventoryPolicy).toEqual(policySchema());
  });

  it('lists the same runtime handlers without OCI hooks as the driver does by default', () => {
    const { kubeletPlugin } = loadYaml<{ kubeletPlugin: { hooklessRuntimeHandlers: string[] } }>(
      read('helm/netdra/values.yaml'),
    );
    expect(kubeletPlugin.hooklessRuntimeHandlers).toEqual(defaultHooklessHandlers);
  });

  it.each([
    ['a misspelled name', { kubeletPlugin: { startGat: 'auto' } }, /kubeletPlugin/],
    ['a value of the wrong type', { http: { port: '8080' } }, /http.port/],
    ['an image without a registry', { image: { repository: 'netdra' } }, /repository/],
    ['more simulated VFs than the driver supports', { kubeletPlugin: { simulate: '99x99' } }, /kubeletPlugin.simulate/],
    ['more simulated VFs than supported, as a number', { kubeletPlugin: { simulate: 129 } }, /kubeletPlugin.simulate/],
    ['a misspelled name in the policy', { inventoryPolicy: { pfs: [{ select: {}, numVf: 8 }] } }, /inventoryPolicy/],
    ['an ID that is not a string', { inventoryPolicy: { pfs: [{ select: { vendor: 8086 } }] } }, /inventoryPolicy/],
    [
      'a PCI address without domain',
      { inventoryPolicy: { nics: [{ select: { pciAddress: '3b:00.0' } }] } },
      /pciAddress/,
    ],
    ['a host with a port', { http: { host: '192.0.2.1:80' } }, /http.host/],
    ['a port that the driver has no capability for', { http: { port: 443 } }, /http.port/],
    ['an invalid digest', { image: { digest: 'sha256:1' } }, /digest/],
    ...[
      'commonLabels',
      'kubeletPlugin.podLabels',
      'serviceMonitor.labels',
      'prometheusRule.labels',
      'dashboard.labels',
    ].map((path): [string, Record<string, unknown>, RegExp] => {
      const labels = { 'app.kubernetes.io/instance': 'mine' };
      const values = path.split('.').reduceRight<Record<string, unknown>>((rest, key) => ({ [key]: rest }), labels);
      return [`a label of the chart in ${path}`, values, new RegExp(path.replace('.', '.'))];
    }),
    [
      'an object of another kind as configuration',
      { deviceClasses: { more: [{ name: 'a', vfConfig: { kind: 'X' } }] } },
      /vfConfig/,
    ],
    [
      'an update strategy that updates no node',
      { kubeletPlugin: { updateStrategy: { rollingUpdate: { maxSurge: 0 } } } },
      /rollingUpdate/,
    ],
    [
      'a variable that is not a string',
      { kubeletPlugin: { extraEnv: [{ name: 'A', value: 1 }] } },
      /extraEnv\W+0\W+value/,
    ],
    ['a value removed by null', { driverName: null }, /missing propert.* 'driverName'|driverName is required/],
    ['a section removed by null', { http: { tls: null } }, /http/],
    ['an unknown layout', { kubeletPlugin: { metadataLayouts: ['v2'] } }, /metadataLayouts/],
  ])('rejects %s in values', (_, values, message) => {
    expect(() => renderObjects({ values })).toThrow(message);
  });

  it("gives an object's own label precedence over a common label", () => {
    const labels = { team: 'own' };
    const objects = renderObjects({
      values: {
        commonLabels: { team: 'all', cost: '1' },
        kubeletPlugin: { podLabels: labels },
        serviceMonitor: { enabled: true, labels },
        prometheusRule: { enabled: true, labels },
        dashboard: { enabled: true, labels },
      },
    });
    const isOwn = (name = '', kind = '') => /ServiceMonitor|PrometheusRule/.test(kind) || name.endsWith('-dashboard');
    const own = objects.filter(({ kind, metadata }) => isOwn(metadata?.name, kind)).map(({ metadata }) => metadata);
    const daemonSet = objects.find(({ kind }) => kind === 'DaemonSet') as V1DaemonSet;
    const all = [...own, daemonSet.spec?.template.metadata].map((metadata) => metadata?.labels);
    expect(all).toEqual(Array(4).fill(expect.objectContaining({ team: 'own', cost: '1' })));
  });

  it.each<[string, Record<string, unknown>]>([
    ['with the default values', {}],
    ['with all options enabled', everythingOn],
    [
      'with all options disabled',
      {
        serviceAccount: { create: false, name: 'mine' },
        kubeletPlugin: { tolerations: [], resources: {} },
        deviceClasses: { kernel: { create: false }, dpdk: { extendedResourceName: '' } },
        admissionPolicies: { slices: false, vfConfig: false },
        nodeView: { enabled: false },
        policyObjects: { enabled: false },
      },
    ],
  ])('fits the schemas of Kubernetes %s', (_, values) => {
    expect(problemsOf({ values, releaseName: 'my-release', namespace: 'net' })).toEqual([]);
  });

  it.each<[string, Record<string, unknown>]>([
    ['dashboard.labels', { dashboard: { enabled: true, labels: null } }],
    ['dashboard.labels.grafana_dashboard', { dashboard: { enabled: true, labels: { grafana_dashboard: null } } }],
    ['deviceClasses.kernel', { deviceClasses: { kernel: null } }],
    ['deviceClasses.dpdk', { deviceClasses: { dpdk: null } }],
    ['http.host', { http: { host: null } }],
    ['prometheusRule.runbookUrlPrefix', { prometheusRule: { enabled: true, runbookUrlPrefix: null } }],
  ])('renders if null removes the default of %s', (_, values) => {
    expect(problemsOf({ values })).toEqual([]);
  });

  it.each([
    ['123', '456'],
    ['1e3', '0x10'],
    ['true', 'null'],
  ])('quotes release %s and namespace %s as strings', (releaseName, namespace) => {
    const sriovOperator = { enabled: true, namespace };
    const options = { values: { ...everythingOn, sriovOperator }, releaseName, namespace };
    expect(problemsOf(options)).toEqual([]);
    for (const { kind, metadata } of renderObjects(options)) {
      expect(String(metadata?.name), kind).toBe(metadata?.name);
      expect([undefined, namespace], kind).toContain(metadata?.namespace);
      expect(metadata?.labels?.['app.kubernetes.io/instance'], kind).toBe(releaseName);
    }
  });

  it.each([
    ['netdra', 'netdra-metrics'],
    ['5g-core', 'netdra-5g-core-metrics'],
    ['net.blue', 'net-blue-metrics'],
    [`5${'g'.repeat(52)}`, `netdra-5${'g'.repeat(47)}-metrics`],
  ])('names the metrics Service of release %s validly: %s', (releaseName, name) => {
    const values = { serviceMonitor: { enabled: true }, http: { tls: { secretName: 'tls' } } };
    const objects = renderObjects({ values, releaseName });
    expect(objects.find(({ kind }) => kind === 'Service')?.metadata?.name).toBe(name);
    expect(name.length).toBeLessThanOrEqual(63);
    const monitor = objects.find(({ kind }) => kind === 'ServiceMonitor') as { spec?: { endpoints: object[] } };
    expect(monitor.spec?.endpoints).toMatchObject([{ tlsConfig: { serverName: `${name}.kube-system.svc` } }]);
  });

  it('includes the alert rules unchanged', () => {
    const { spec } = find<{ spec: object }>('PrometheusRule', { prometheusRule: { enabled: true } });
    const rules = read('helm/netdra/alerts.yaml');
    expect(spec).toEqual(loadYaml(rules));
    const prefix = 'https://git.example.com/netdra/blob/main/';
    const prefixed = find<{ spec: object }>('PrometheusRule', {
      prometheusRule: { enabled: true, runbookUrlPrefix: prefix },
    });
    expect(prefixed.spec).toEqual(loadYaml(rules.replaceAll('runbook_url: docs/', `runbook_url: ${prefix}docs/`)));
  });

  it.each([
    ['NodeNetworkDevices', 'nodeView', 'nodenetworkdevices', ['ValidatingAdmissionPolicy netdra-node-view']],
    ['NetworkDevicePolicies', 'policyObjects', 'networkdevicepolicies', []],
  ])(
    'renders objects of %s only with %s.enabled, and the CustomResourceDefinition once per cluster',
    (_, value, plural, policies) => {
      const mentions = (values: object) => {
        const objects = renderObjects({ values: { [value]: values } });
        const isMeant = (object: object) =>
          new RegExp(`${plural}|--${value === 'nodeView' ? 'node-view' : 'policy-objects'}`).test(
            JSON.stringify(object),
          );
        return objects.filter(isMeant).map(({ kind, metadata }) => `${kind} ${metadata?.name}`);
      };
      const always = ['ClusterRole netdra', 'ClusterRole netdra-viewer', 'DaemonSet netdra'];
      const definition = `CustomResourceDefinition ${plural}.netdra.dev`;
      expect(mentions({}).sort()).toEqual([...always, definition, ...policies].sort());
      expect(mentions({ createDefinition: false }).sort()).toEqual([...always, ...policies].sort());
      expect(mentions({ enabled: false })).toEqual([]);
    },
  );

  it('renders objects for address pools only with addressPools.enabled, and the CustomResourceDefinitions once per cluster', () => {
    const mentions = (addressPools: object) =>
      renderObjects({ values: { addressPools } })
        .filter((object) => /networkaddress/.test(JSON.stringify(object)))
        .map(({ kind, metadata }) => `${kind} ${metadata?.name}`);
    const roles = ['ClusterRole netdra', 'ClusterRole netdra-viewer'];
    const policy = 'ValidatingAdmissionPolicy netdra-address-leases';
    const definitions = ['addresses', 'addressleases', 'addresspools'].map(
      (each) => `CustomResourceDefinition network${each}.netdra.dev`,
    );
    expect(mentions({ enabled: true }).sort()).toEqual([...roles, policy, ...definitions].sort());
    expect(mentions({ enabled: true, createDefinitions: false }).sort()).toEqual([...roles, policy]);
    expect(mentions({})).toEqual([]);
  });

  it("lets the driver read the SR-IOV operator's state only with sriovOperator.enabled", () => {
    const mentions = (sriovOperator: object) =>
      renderObjects({ values: { sriovOperator } })
        .filter((object) => /sriovnetworknodestates|sriov-network-operator/.test(JSON.stringify(object)))
        .map(({ kind, metadata }) => `${kind} ${metadata?.namespace}/${metadata?.name}`);
    for (const namespace of ['sriov-network-operator', 'openshift-sriov-network-operator']) {
      const own = `${namespace}/netdra`;
      expect(mentions({ enabled: true, namespace }).sort()).toEqual([
        'DaemonSet kube-system/netdra',
        `Role ${own}`,
        `RoleBinding ${own}`,
      ]);
    }
    expect(mentions({ enabled: false })).toEqual([]);
  });

  it('publishes NUMA nodes as lists if enabled', () => {
    const flag = '--list-attributes=true';
    expect(podOf({})?.containers[0]?.args).not.toContain(flag);
    expect(podOf({ kubeletPlugin: { listAttributes: true } })?.containers[0]?.args).toContain(flag);
  });

  it('exports traffic metrics of VFs, labelled with their pods, if enabled', () => {
    const flag = '--vf-traffic=true';
    expect(podOf({})?.containers[0]?.args).not.toContain(flag);
    expect(podOf({ kubeletPlugin: { vfTraffic: true } })?.containers[0]?.args).toContain(flag);
    const { spec } = find<{ spec: object }>('ServiceMonitor', { serviceMonitor: { enabled: true } });
    expect(spec).toMatchObject({ endpoints: [{ honorLabels: true }] });
  });

  it('gives the driver and its readiness probe a revision that changes only with the pod template', () => {
    const revision = (values: Record<string, unknown>) => {
      const [container] = podOf(values)?.containers ?? [];
      const [own] = (container?.args ?? []).flatMap((arg) => /^--revision=(.+)$/.exec(arg)?.[1] ?? []);
      expect(container?.readinessProbe?.httpGet?.path).toBe(`/readyz?revision=${own}`);
      return own;
    };
    const policy = { inventoryPolicy: { pfs: [{ select: { vendor: '8086' } }] } };
    expect(revision({ kubeletPlugin: { extraEnv: [{ name: 'A', value: 'b' }] } })).not.toBe(revision({}));
    const other = { inventoryPolicy: { pfs: [{ select: { vendor: '15b3' } }] }, prometheusRule: { enabled: true } };
    expect(revision(other)).toBe(revision(policy));
  });

  it('names the scrape job as the alert NetdraDown expects, for every release name', () => {
    const values = { serviceMonitor: { enabled: true } };
    const objects = renderObjects({ values, releaseName: 'sriov' });
    const monitor = objects.find(({ kind }) => kind === 'ServiceMonitor') as { spec?: { jobLabel: string } };
    const service = objects.find(({ kind }) => kind === 'Service');
    const job = service?.metadata?.labels?.[monitor.spec?.jobLabel ?? ''];
    expect(job).toBe('netdra');
    expect(read('helm/netdra/alerts.yaml')).toContain(`up{job="${job}"} == 0`);
  });
});
