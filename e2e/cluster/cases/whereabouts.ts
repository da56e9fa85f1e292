import { cpSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { CommandError } from '../../../scripts/packages/run.ts';
import { findForeignPlugin } from '../../node/foreign-cni.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { cniStateDir } from '../node/driver.ts';
import type { RealNode } from '../node/real-node.ts';
import { anyFieldsDefinition, createPodWithClaim, testClass } from '../objects.ts';

const user = 'whereabouts';
// Visible to the driver's pod; the usual place, below /etc/cni/net.d, is not mounted there.
const kubeconfigPath = join(cniStateDir, 'whereabouts.kubeconfig');
const configPath = join(cniStateDir, 'whereabouts.conf');
const group = 'whereabouts.cni.cncf.io';

interface IpPool {
  spec: { range: string; allocations: Record<string, { podref: string }> };
}

const permissions = {
  apiVersion: 'rbac.authorization.k8s.io/v1',
  kind: 'ClusterRole',
  metadata: { name: user },
  rules: [
    { apiGroups: [group, 'coordination.k8s.io'], resources: ['*'], verbs: ['*'] },
    { apiGroups: [''], resources: ['pods'], verbs: ['get', 'list'] },
  ],
};
const binding = {
  apiVersion: 'rbac.authorization.k8s.io/v1',
  kind: 'ClusterRoleBinding',
  metadata: { name: user },
  roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: user },
  subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: user }],
};
const definitions = ['IPPool', 'OverlappingRangeIPReservation'].map((kind) =>
  anyFieldsDefinition(group, 'v1alpha1', kind),
);

/** Installs what whereabouts needs in a cluster; disposing removes it again. @throws CommandError */
function installWhereabouts(node: RealNode): Disposable {
  const { authority, server } = node.controlPlane;
  using stack = new DisposableStack();
  cpSync(authority.kubeconfig(user, `/CN=${user}`, server), kubeconfigPath);
  stack.defer(() => rmSync(kubeconfigPath));
  writeFileSync(configPath, JSON.stringify({ kubernetes: { kubeconfig: kubeconfigPath } }));
  stack.defer(() => rmSync(configPath));
  const manifest = join(node.dir, 'whereabouts.json');
  writeFileSync(
    manifest,
    JSON.stringify({ apiVersion: 'v1', kind: 'List', items: [...definitions, permissions, binding] }),
  );
  const run = (...args: string[]) => {
    const printed = node.kubectl(...args);
    if (/error/i.test(printed)) throw new CommandError('command-failed', `kubectl ${args.join(' ')}:\n${printed}`);
  };
  run('apply', '--filename', manifest);
  stack.defer(() => run('delete', '--filename', manifest, '--wait', '--timeout=60s'));
  for (const { metadata } of definitions)
    run('wait', '--for=condition=Established', `crd/${metadata.name}`, '--timeout=60s');
  return stack.move();
}

/** Claims with addresses from the IPAM plugin whereabouts, which stores them in objects of the API server. */
export function describeWhereabouts(get: GetCluster, getNode: () => RealNode): void {
  it('IPAM by whereabouts assigns each pod its own address, and releases it', async ({ skip }) => {
    const plugin = findForeignPlugin('whereabouts', process.env);
    if ('missing' in plugin) return skip(plugin.missing);
    const { cluster, view } = get();
    const node = getNode();
    using _ = installWhereabouts(node);
    const ipam = { type: 'whereabouts', range: '198.18.10.0/29', configuration_path: configPath };
    const { metadata } = await cluster.create(testClass(cluster, 'whereabouts', { interfaceName: 'net1', ipam }));
    await using _class = { [Symbol.asyncDispose]: () => cluster.remove('DeviceClass', metadata.name) };
    const start = async (name: string) => {
      await createPodWithClaim(cluster, name, [{ name: 'vf', deviceClassName: metadata.name }]);
    };
    const addressOf = async (name: string) => {
      await cluster.waitUntilRunning(name);
      const link = (await view(name).links()).find(({ ifname }) => ifname === 'net1');
      const addresses = (link?.addr_info ?? []).filter(({ scope }) => scope === 'global');
      const [device] = (await view(name).metadata(`resourceclaims/${name}`, 'vf')).devices;
      expect(device?.networkData?.ips).toEqual(addresses.map(({ local, prefixlen }) => `${local}/${prefixlen}`));
      return device?.networkData?.ips;
    };
    /** Pods that have an address, according to the plugin. */
    const holders = async () =>
      (await node.list<IpPool>(`/apis/${group}/v1alpha1/ippools`))
        .flatMap(({ spec }) => Object.values(spec.allocations).map(({ podref }) => podref))
        .sort();
    const nameOf = (pod: string) => `${cluster.namespace}/${pod}`;
    const gone = { timeout: 60_000, interval: 250 };

    await Promise.all([start('one'), start('two')]);
    const [one, two] = [await addressOf('one'), await addressOf('two')];
    expect([one, two].sort()).toEqual([['198.18.10.1/29'], ['198.18.10.2/29']]);
    expect(await holders()).toEqual([nameOf('one'), nameOf('two')]);
    await cluster.remove('Pod', 'one');
    await expect.poll(holders, gone).toEqual([nameOf('two')]);
    await start('three');
    expect(await addressOf('three')).toEqual(one);
    await Promise.all(['two', 'three'].map((name) => cluster.remove('Pod', name)));
    await expect.poll(holders, gone).toEqual([]);
  });
}
