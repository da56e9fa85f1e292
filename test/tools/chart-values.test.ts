import type { V1ConfigMap, V1DeviceClass } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { parseObjects, renderChart, renderObjects } from '../../e2e/release/chart.ts';
import { find, podOf, problemsOf, read } from './chart-objects.ts';

/** Values that most charts have, each with one that is not its default. */
const common: Record<string, Record<string, unknown>> = {
  'global.imageRegistry': { global: { imageRegistry: 'mirror.example.com:5000/hub' } },
  nameOverride: { nameOverride: 'vfs' },
  namespaceOverride: { namespaceOverride: 'sriov' },
  commonLabels: { commonLabels: { 'example.com/team': 'net', cost: '1' } },
  kubeletRootDirectoryPath: { kubeletPlugin: { kubeletRootDirectoryPath: '/data/kubelet' } },
  extraEnv: { kubeletPlugin: { extraEnv: [{ name: 'HTTPS_PROXY', value: 'http://192.0.2.1' }] } },
  extraVolumes: {
    kubeletPlugin: {
      extraVolumes: [{ name: 'ca', configMap: { name: 'ca' } }],
      extraVolumeMounts: [{ name: 'ca', mountPath: '/etc/ca', readOnly: true }],
    },
  },
  'deviceClasses.more': {
    deviceClasses: {
      more: [{ name: 'fast', extendedResourceName: 'example.com/fast', selectors: ['true'], vfConfig: { mtu: 9000 } }],
    },
  },
  serviceMonitor: {
    serviceMonitor: {
      enabled: true,
      scrapeTimeout: '5s',
      relabelings: [{ targetLabel: 'cluster', replacement: 'a' }],
      metricRelabelings: [{ action: 'labeldrop', regex: 'driver_name' }],
    },
  },
  dashboard: { dashboard: { enabled: true, namespace: 'grafana', annotations: { 'grafana-folder': 'Network' } } },
  extraObjects: {
    extraObjects: [
      { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'mine' }, data: { text: '{{ $labels.node }}' } },
      'apiVersion: v1\nkind: ConfigMap\nmetadata: { name: {{ include "netdra.name" . }}-mine }',
    ],
  },
};

function merged(...parts: Record<string, unknown>[]): Record<string, unknown> {
  const isObject = (value: unknown): value is Record<string, unknown> =>
    typeof value === 'object' && value !== null && !Array.isArray(value);
  return parts.reduce<Record<string, unknown>>((all, part) => {
    for (const [key, value] of Object.entries(part)) {
      const before = all[key];
      all[key] = isObject(before) && isObject(value) ? merged(before, value) : value;
    }
    return all;
  }, {});
}

describe('common chart values', () => {
  const names = Object.keys(common);
  it.each<[string, string[]]>([
    ...names.map((name): [string, string[]] => [`${name} alone`, [name]]),
    ...names.map((name): [string, string[]] => [`all but ${name}`, names.filter((each) => each !== name)]),
    ['all', names],
  ])('render objects that fit the schemas of Kubernetes: %s', (_, chosen) => {
    const values = merged(...chosen.map((name) => common[name] ?? {}));
    expect(problemsOf({ values, releaseName: 'my-release', namespace: 'net' })).toEqual([]);
  });

  it('name, place and label all objects, but keep selectors unchanged', () => {
    const values = merged(...['nameOverride', 'namespaceOverride', 'commonLabels'].map((name) => common[name] ?? {}));
    const options = { releaseName: 'net', namespace: 'kube-system', withTests: true };
    const objects = parseObjects(renderChart({ ...options, values }));
    const before = parseObjects(renderChart(options));
    expect(objects).toHaveLength(before.length);
    for (const { kind, metadata } of objects) {
      expect(metadata?.labels, kind).toMatchObject({ 'example.com/team': 'net', cost: '1' });
      expect([undefined, 'sriov'], kind).toContain(metadata?.namespace);
    }
    expect(find<{ metadata: { name: string } }>('DaemonSet', values).metadata.name).toBe('netdra-vfs');
    const text = JSON.stringify(objects);
    expect(text).toContain('system:serviceaccount:sriov:net-vfs');
    expect(text).not.toContain('kube-system');
    const selectorOf = (all: typeof objects) =>
      (all.find(({ kind }) => kind === 'DaemonSet') as { spec?: { selector: object } } | undefined)?.spec?.selector;
    expect(selectorOf(objects)).toEqual(selectorOf(before));
    const named = (nameOverride: string) => find<{ metadata: { name: string } }>('DaemonSet', { nameOverride });
    expect(named('net').metadata.name).toBe('netdra');
  });

  it('change the registry of all images', () => {
    const imagesOf = (image: object) => {
      const values = { image, global: { imageRegistry: 'mirror.example.com:5000/hub/' } };
      const text = renderChart({ values, withTests: true });
      return [...new Set([...text.matchAll(/ image: (.*)/g)].map(([, name]) => name))];
    };
    expect(imagesOf({})).toEqual(['"mirror.example.com:5000/hub/netdra:0.1.0"']);
    const digest = `sha256:${'a'.repeat(64)}`;
    expect(imagesOf({ repository: 'registry.example.com/net/netdra', digest })).toEqual([
      `"mirror.example.com:5000/hub/net/netdra@${digest}"`,
    ]);
  });

  it('reject an image tag together with a digest, and treat null as unset for both', () => {
    const digest = `sha256:${'a'.repeat(64)}`;
    const imageOf = (image: object) => podOf({ image })?.containers[0]?.image;
    expect(() => imageOf({ digest, tag: '0.1.1' })).toThrow(
      /image\.tag \(0\.1\.1\) has no effect beside image\.digest: .*--set image\.digest=/,
    );
    expect(imageOf({ digest: null, tag: '0.1.1' })).toBe('localhost/netdra:0.1.1');
    expect(imageOf({ digest, tag: null })).toBe(`localhost/netdra@${digest}`);
  });

  it("derive paths from the kubelet's root directory unless a directory is set explicitly", () => {
    const pathsOf = (kubeletPlugin: object) => {
      const { volumes = [], containers = [] } = podOf({ kubeletPlugin }) ?? {};
      const paths = ['plugin', 'registry', 'seccomp'].map(
        (name) => volumes.find((each) => each.name === name)?.hostPath?.path,
      );
      return [...paths, containers[0]?.env?.find(({ name }) => name === 'NETDRA_KUBELET_PLUGINS_DIR')?.value];
    };
    const of = (root: string) => [
      `${root}/plugins/sriov.netdra.dev`,
      `${root}/plugins_registry`,
      `${root}/seccomp`,
      `${root}/plugins`,
    ];
    expect(pathsOf({})).toEqual(of('/var/lib/kubelet'));
    expect(pathsOf({ kubeletRootDirectoryPath: '/data/kubelet' })).toEqual(of('/data/kubelet'));
    const single = { kubeletRootDirectoryPath: '/data/kubelet', kubeletPluginsDirectoryPath: '/srv/plugins' };
    expect(pathsOf(single)).toEqual([
      '/srv/plugins/sriov.netdra.dev',
      '/data/kubelet/plugins_registry',
      '/data/kubelet/seccomp',
      '/srv/plugins',
    ]);
  });

  it('add DeviceClasses for VFs of this driver', () => {
    const more = [
      { name: 'fast', extendedResourceName: 'example.com/fast', selectors: ['1 < 2'], vfConfig: { mtu: 9000 } },
      { name: 'plain' },
    ];
    const classes = renderObjects({ values: { deviceClasses: { more } } }) as V1DeviceClass[];
    const specOf = (name: string) =>
      classes.find(({ kind, metadata }) => kind === 'DeviceClass' && metadata?.name === name)?.spec;
    const ours = { cel: { expression: 'device.driver == "sriov.netdra.dev"' } };
    expect(specOf('plain')).toEqual({ selectors: [ours] });
    const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', mtu: 9000 };
    expect(specOf('fast')).toEqual({
      extendedResourceName: 'example.com/fast',
      selectors: [ours, { cel: { expression: '1 < 2' } }],
      config: [{ opaque: { driver: 'sriov.netdra.dev', parameters } }],
    });
  });

  it("render the dashboard unchanged, with the label that Grafana's sidecar looks for", () => {
    expect(renderObjects().filter(({ kind }) => kind === 'ConfigMap')).toEqual([]);
    const { metadata, data } = find<V1ConfigMap>('ConfigMap', { dashboard: { enabled: true } });
    expect(metadata).toMatchObject({ namespace: 'kube-system', labels: { grafana_dashboard: '1' } });
    expect(data).toEqual({ 'netdra.json': read('helm/netdra/dashboard.json') });
  });

  it('add the given scrape settings to the scrape settings of the chart', () => {
    const { spec } = find<{ spec: { endpoints: object[] } }>('ServiceMonitor', common.serviceMonitor ?? {});
    expect(spec.endpoints).toMatchObject([
      {
        interval: '30s',
        scrapeTimeout: '5s',
        relabelings: [{ targetLabel: 'node' }, { targetLabel: 'cluster', replacement: 'a' }],
        metricRelabelings: [{ action: 'labeldrop' }],
      },
    ]);
  });

  it('render extra objects, and evaluate extra objects given as text as templates', () => {
    const maps = renderObjects({ values: common.extraObjects ?? {} }).filter(({ kind }) => kind === 'ConfigMap');
    expect(maps.map(({ metadata }) => metadata?.name)).toEqual(['mine', 'netdra-mine']);
    expect(maps[0]).toMatchObject({ data: { text: '{{ $labels.node }}' } });
  });
});
