import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ResourceV1ResourceClaim, V1Pod } from '@kubernetes/client-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { defaultHostDirs, layoutNames } from '../../../src/framework/metadata/index.ts';
import { listFolder } from '../../node/host-state.ts';
import { chartDir } from '../../release/chart.ts';
import { valueArguments } from '../../release/helm.ts';
import { downwardApiDir, driverNamespace } from '../node/driver.ts';
import type { ReleaseSite } from './release.ts';

const wait = ['--wait', '--timeout', '2m'];
const settled = { timeout: 60_000, interval: 500 };
const ownAddress = '192.0.2.7/24';
const addedAddress = '192.0.2.77/24';

/** A line of the driver's log. */
interface LogEntry {
  level: number;
  time: string;
  msg: string;
}
/** The level of warnings in the log. Source: pino, `levels`. */
const warning = 40;

/** Upgrades that change `kubeletPlugin.metadataLayouts` while a pod has a claim, on a node without the driver. */
export function describeLayouts(get: () => ReleaseSite): void {
  describe('an upgrade that changes the metadata layouts', () => {
    const kubectl = (...args: string[]) =>
      get()
        .node.kubectl('--namespace', driverNamespace, ...args)
        .trim();
    const setLayouts = (layouts: readonly string[]) => [
      '--set-json',
      `kubeletPlugin.metadataLayouts=${JSON.stringify(layouts)}`,
    ];
    const upgrade = (layouts: readonly string[], ...more: string[]) =>
      get().driver.helm(['upgrade', 'netdra', chartDir, '--reset-then-reuse-values', ...setLayouts(layouts), ...more]);
    /** Also waits until the old instance has ended. */
    const upgradeAll = async (layouts: readonly string[]) => {
      upgrade(layouts, ...wait);
      await expect.poll(() => get().node.driverPids().length, settled).toBe(1);
    };
    const find = <T>(kind: string, name: string) => JSON.parse(kubectl('get', kind, name, '--output', 'json')) as T;
    const filesOnNode = () => [downwardApiDir, defaultHostDirs.attributesDir].flatMap(listFolder);

    /** Creates a pod with a VF by a claim of its own, both of this name, and waits until it runs. */
    const create = (name: string) => {
      const { node, driver } = get();
      const path = join(node.dir, `${name}.json`);
      writeFileSync(path, JSON.stringify(podWithClaim(name, driver.target)));
      kubectl('apply', '--filename', path);
      expect(kubectl('wait', `pod/${name}`, '--for=condition=Ready', '--timeout=60s')).toContain('condition met');
    };
    const remove = (...names: string[]) => {
      for (const kind of ['pod', 'resourceclaim']) kubectl('delete', kind, ...names, '--timeout=60s');
    };
    /** What the file of the layout `downward-api` in the container says, and what the claim's status says. */
    const addresses = (name: string) => {
      const text = kubectl('exec', name, '--', 'cat', `${defaultHostDirs.downwardApiDir}/${name}.vf.json`);
      const file = JSON.parse(text).requests[0].devices[0].driverProvidedData.networkData;
      const [status] = find<ResourceV1ResourceClaim>('resourceclaim', name).status?.devices ?? [];
      const ready = status?.conditions?.find(({ type }) => type === 'Ready')?.status;
      return { file: file.addresses, status: status?.networkData?.ips, ready };
    };
    const described = (ips: string[]) => ({ file: ips, status: ips, ready: 'True' });

    beforeAll(() => {
      const { driver } = get();
      const values = valueArguments({ ...driver.values, 'kubeletPlugin.minReadySeconds': 0 });
      driver.helm([
        'install',
        'netdra',
        chartDir,
        '--create-namespace',
        ...values,
        ...setLayouts(layoutNames),
        ...wait,
      ]);
    });
    afterAll(() => {
      get().driver.helm(['uninstall', 'netdra', ...wait]);
    });

    it('leaves a claim the layouts that it has: its files are updated, also in another sandbox, and removed with it', async () => {
      const { node } = get();
      create('kept');
      expect(addresses('kept')).toEqual(described([ownAddress]));
      const attributes = kubectl('exec', 'kept', '--', 'sh', '-c', `cat ${defaultHostDirs.attributesDir}/*-vf.json`);
      const { claims } = JSON.parse(attributes);
      const busId = { 'resource.kubernetes.io/pciBusID': expect.any(String) };
      expect(claims[0].requests).toMatchObject([{ requestName: 'vf', attributes: busId }]);
      expect(filesOnNode()).toHaveLength(2);
      await upgradeAll(['v1', 'kep']);
      kubectl('exec', 'kept', '--', 'ip', 'address', 'add', addedAddress, 'dev', 'net1');
      await expect.poll(() => addresses('kept'), settled).toEqual(described([ownAddress, addedAddress]));

      const uid = find<V1Pod>('pod', 'kept').metadata?.uid;
      const sandboxes = async () => {
        const { items } = await node.runtime.cri.call('ListPodSandbox', {});
        return items.flatMap(({ id, state, metadata }) =>
          metadata.uid === uid && state === 'SANDBOX_READY' ? [id] : [],
        );
      };
      const [first = ''] = await sandboxes();
      await node.runtime.cri.call('StopPodSandbox', { podSandboxId: first });
      await expect.poll(async () => (await sandboxes()).filter((id) => id !== first), settled).toHaveLength(1);
      await expect.poll(() => addresses('kept'), settled).toEqual(described([ownAddress]));
      expect(find<V1Pod>('pod', 'kept').metadata?.uid).toBe(uid);

      create('next');
      expect(kubectl('exec', 'next', '--', 'ls', defaultHostDirs.downwardApiDir)).toContain('No such file');
      expect(filesOnNode()).toHaveLength(2);
      remove('kept', 'next');
      expect(filesOnNode()).toEqual([]);
    });

    it('has both instances agree on a layout that only the new one has in its list', async () => {
      const { node } = get();
      await upgradeAll(['v1', 'kep']);
      const since = new Date().toISOString();
      // The old instance stays until the end of the test.
      upgrade(layoutNames, '--set', 'kubeletPlugin.minReadySeconds=120');
      const names = 'jsonpath={.items[*].metadata.name}';
      const pods = () =>
        kubectl('get', 'pods', '--selector', 'app.kubernetes.io/name=netdra', '--output', names).split(' ');
      const logs = () => pods().map((pod) => kubectl('logs', pod, '--container', 'driver'));
      // The kubelet has the claim prepared by the instance that registered last. Probes do not tell: the old one answers.
      const registered = () => logs().filter((log) => log.includes('"registered with the kubelet"'));
      await expect.poll(registered, settled).toHaveLength(2);
      create('added');
      kubectl('exec', 'added', '--', 'ip', 'address', 'add', addedAddress, 'dev', 'net1');
      await expect.poll(() => addresses('added'), settled).toEqual(described([ownAddress, addedAddress]));
      remove('added');
      expect(filesOnNode()).toEqual([]);
      expect([pods().length, node.driverPids().length]).toEqual([2, 2]);
      const entries = logs().flatMap((log) => log.split('\n').map((line) => JSON.parse(line) as LogEntry));
      const warnings = entries.filter(({ level, time }) => level >= warning && time >= since);
      // That one is about the machine of the test.
      expect(warnings.filter(({ msg }) => msg !== 'event loop stalled')).toEqual([]);
    });
  });
}

function podWithClaim(name: string, { driver, classes, consumerImage }: ReleaseSite['driver']['target']) {
  const parameters = {
    apiVersion: 'netdra.dev/v1alpha1',
    kind: 'VFConfig',
    interfaceName: 'net1',
    addresses: [ownAddress],
  };
  const requests = [{ name: 'vf', exactly: { deviceClassName: classes.kernel } }];
  const claim = {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceClaim',
    metadata: { name },
    spec: { devices: { requests, config: [{ opaque: { driver, parameters } }] } },
  };
  const container = {
    name: 'main',
    image: consumerImage,
    command: ['sleep', '3600'],
    resources: { claims: [{ name: 'nic' }] },
    // To change the addresses of its VF.
    securityContext: { capabilities: { add: ['NET_ADMIN'] } },
  };
  const pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name },
    spec: {
      resourceClaims: [{ name: 'nic', resourceClaimName: name }],
      containers: [container],
      terminationGracePeriodSeconds: 1,
    },
  };
  return { apiVersion: 'v1', kind: 'List', items: [claim, pod] };
}
