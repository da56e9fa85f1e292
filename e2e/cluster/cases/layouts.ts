import type { ResourceV1ResourceClaim, V1Pod } from '@kubernetes/client-node';
import { afterEach, describe, expect, it } from 'vitest';
import { defaultHostDirs, layoutNames } from '../../../src/framework/metadata/index.ts';
import { listFolder } from '../../node/host-state.ts';
import { chartDir } from '../../release/chart.ts';
import { valueArguments } from '../../release/helm.ts';
import { downwardApiDir } from '../node/driver.ts';
import { type ReleaseSite, waitArguments } from './release-site.ts';

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

/** Upgrades that change `kubeletPlugin.metadataLayouts`, of a release with all of them, while a pod has a claim. */
export function describeLayouts(get: () => ReleaseSite): void {
  describe('an upgrade that changes the metadata layouts', () => {
    const kubectl = (...args: string[]) => get().kubectl(...args);
    const upgrade = (layouts: readonly string[], ...more: string[]) => {
      const values = valueArguments({ 'kubeletPlugin.metadataLayouts': layouts });
      get().helm('upgrade', 'netdra', chartDir, '--reset-then-reuse-values', ...values, ...more);
    };
    /** Also waits until the old instance has ended. */
    const upgradeAll = async (layouts: readonly string[]) => {
      upgrade(layouts, ...waitArguments);
      await expect.poll(() => get().node.driverPids().length, settled).toBe(1);
    };
    const filesOnNode = () => [downwardApiDir, defaultHostDirs.attributesDir].flatMap(listFolder);
    const create = (name: string) => get().holdReady(name, { interfaceName: 'net1', addresses: [ownAddress] });
    afterEach(() => get().release('kept', 'next', 'added'));

    /** What the file of the layout `downward-api` in the container says, and what the claim's status says. */
    const addresses = (name: string) => {
      const text = kubectl('exec', name, '--', 'cat', `${defaultHostDirs.downwardApiDir}/${name}.vf.json`);
      const file = JSON.parse(text).requests[0].devices[0].driverProvidedData.networkData;
      const [status] = get().find<ResourceV1ResourceClaim>('resourceclaim', name).status?.devices ?? [];
      const ready = status?.conditions?.find(({ type }) => type === 'Ready')?.status;
      return { file: file.addresses, status: status?.networkData?.ips, ready };
    };
    const described = (ips: string[]) => ({ file: ips, status: ips, ready: 'True' });

    it('keeps the layouts of a claim prepared before, whose files are updated, and removed with the claim', async () => {
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

      const uid = get().find<V1Pod>('pod', 'kept').metadata?.uid;
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
      expect(get().find<V1Pod>('pod', 'kept').metadata?.uid).toBe(uid);

      create('next');
      expect(kubectl('exec', 'next', '--', 'ls', defaultHostDirs.downwardApiDir)).toContain('No such file');
      expect(filesOnNode()).toHaveLength(2);
      get().release('kept', 'next');
      expect(filesOnNode()).toEqual([]);
    });

    it('keeps the files of an added layout up to date while old and new driver instance both run', async () => {
      const { node } = get();
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
      get().release('added');
      expect(filesOnNode()).toEqual([]);
      expect([pods().length, node.driverPids().length]).toEqual([2, 2]);
      const entries = logs().flatMap((log) => log.split('\n').map((line) => JSON.parse(line) as LogEntry));
      const warnings = entries.filter(({ level, time }) => level >= warning && time >= since);
      // That one is about the machine of the test.
      expect(warnings.filter(({ msg }) => msg !== 'event loop stalled')).toEqual([]);
    });
  });
}
