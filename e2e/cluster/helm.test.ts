import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { V1Pod } from '@kubernetes/client-node';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cacheFolder } from '../node/tools.ts';
import { packageChart, pushChart } from '../release/chart.ts';
import { helmVersions } from '../release/helm.ts';
import { driverNamespace, InstalledDriver } from './node/driver.ts';
import { RealNode } from './node/real-node.ts';
import { readPrograms } from './programs.ts';

const programs = readPrograms(process.env);
const cacheDir = cacheFolder(process.env);
const kinds = 'daemonsets,pods,serviceaccounts,configmaps,resourceclaims,resourceclaimtemplates';
const clusterKinds =
  'clusterroles,clusterrolebindings,deviceclasses,validatingadmissionpolicies,validatingadmissionpolicybindings';

let node: RealNode;
beforeAll(async () => {
  node = await RealNode.start(programs);
});
afterAll(async () => {
  await node[Symbol.asyncDispose]();
});

/** Everything that operators do with the chart, in one release: docs/operators.md and docs/upgrade.md. */
describe.each(helmVersions)(`the chart by %s on Kubernetes ${programs.kubernetesVersion}`, (version) => {
  const stack = new AsyncDisposableStack();
  let driver: InstalledDriver;
  const helm = (...args: string[]) => driver.helm(args, version);
  const kubectl = (...args: string[]) => node.kubectl('--namespace', driverNamespace, ...args).trim();
  const logLevel = () => /--log-level=(\w+)/.exec(kubectl('get', 'daemonset', 'netdra', '--output', 'yaml'))?.[1];
  const holder = () => JSON.parse(kubectl('get', 'pod', 'holder', '--output', 'json')) as V1Pod;

  beforeAll(async () => {
    driver = stack.use(await InstalledDriver.install(node, { simulate: '1x4', helmVersion: version }));
  });
  afterAll(async () => {
    await stack.disposeAsync();
  });

  it('passes its test: a pod gets a VF and reads its file; nothing of it stays', () => {
    expect(helm('test', 'netdra')).toMatch(/TEST SUITE: +netdra-test\n.*\n.*\nPhase: +Succeeded/);
    expect(kubectl('get', 'pods,resourceclaimtemplates', '--selector', 'app.kubernetes.io/name=netdra-test')).toContain(
      'No resources found',
    );
  });

  it('is upgraded and rolled back under a pod with a VF, which goes on as it was', () => {
    const path = join(node.dir, 'holder.json');
    writeFileSync(path, JSON.stringify(holderObjects(driver.target.consumerImage)));
    kubectl('apply', '--filename', path);
    kubectl('wait', 'pod/holder', '--for=condition=Ready', '--timeout=60s');
    const before = holder();
    const links = () => kubectl('exec', 'holder', '--', 'ip', '-o', 'link');
    const linksBefore = links();
    const change = ['--reset-then-reuse-values', '--set', 'kubeletPlugin.logLevel=debug'];
    const archive = packageChart(cacheDir, node.dir, version);
    const chart = pushChart(cacheDir, archive, driver.registry.address, version);
    helm('upgrade', 'netdra', chart, '--plain-http', ...change, '--wait', '--timeout', '2m');
    expect(logLevel()).toBe('debug');
    helm('rollback', 'netdra', '--wait', '--timeout', '2m');
    expect(logLevel()).toBe('info');
    expect(helm('history', 'netdra')).toMatch(/deployed .*Rollback to 1/);
    expect(holder().metadata?.uid).toBe(before.metadata?.uid);
    expect(holder().status?.containerStatuses).toEqual(before.status?.containerStatuses);
    expect(links()).toBe(linksBefore);
    kubectl('delete', '--filename', path, '--timeout=60s');
  });

  it('is uninstalled, and leaves nothing', async () => {
    helm('uninstall', 'netdra', '--wait');
    const selector = ['--selector', 'app.kubernetes.io/instance=netdra'];
    // Helm does not wait for pods.
    const objects = () => kubectl('get', kinds, ...selector);
    await expect.poll(objects, { timeout: 60_000, interval: 500 }).toContain('No resources found');
    expect(node.kubectl('get', clusterKinds, ...selector)).toContain('No resources found');
    // The kubelet deletes the slices of a driver that has been gone for half a minute.
    const slices = () => node.kubectl('get', 'resourceslices');
    await expect.poll(slices, { timeout: 90_000, interval: 1_000 }).toContain('No resources found');
  });
});

function holderObjects(image: string) {
  const requests = [{ name: 'vf', exactly: { deviceClassName: 'netdra-kernel' } }];
  const claim = {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceClaim',
    metadata: { name: 'holder' },
    spec: { devices: { requests } },
  };
  const container = { name: 'main', image, command: ['sleep', '3600'], resources: { claims: [{ name: 'nic' }] } };
  const pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'holder' },
    spec: {
      resourceClaims: [{ name: 'nic', resourceClaimName: 'holder' }],
      containers: [container],
      terminationGracePeriodSeconds: 1,
    },
  };
  return { apiVersion: 'v1', kind: 'List', items: [claim, pod] };
}
