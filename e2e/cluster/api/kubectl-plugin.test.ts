import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import type { KubernetesObject } from '@kubernetes/client-node';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { makePackageProgram } from '../../../deploy/image/image-files.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { readPrograms } from '../programs.ts';
import { ApiCluster } from './api-cluster.ts';

const kubectl = join(readPrograms(process.env).kubernetes, 'kubectl');
const dir = mkdtempSync(join(tmpdir(), 'kubectl-plugin-'));
const path = join(dir, 'path');

let cluster: ApiCluster;
beforeAll(async () => {
  cluster = await ApiCluster.start({ featureGates: { DRADeviceTaints: true } });
  const program = join(dir, 'bin/netdra.mjs');
  await makePackageProgram(program);
  // As npm links the commands of a package.
  mkdirSync(path);
  symlinkSync('../bin/kubectl-netdra.mjs', join(path, 'kubectl-netdra'));
}, 180_000);
afterAll(async () => {
  await cluster?.[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

function run(...args: string[]) {
  const env = { ...process.env, KUBECONFIG: '', HOME: dir, PATH: `${path}${delimiter}${process.env.PATH}` };
  const { status, stdout, stderr } = spawnSync(kubectl, ['netdra', ...args], { encoding: 'utf8', env });
  return { status, stdout, stderr };
}

/** A node with the driver's pod, as its kubelet reports it, and its slice. */
async function addNode(nodeName: string, devices: object[]): Promise<void> {
  const { resources } = await cluster.driverOn(nodeName);
  const pool = { name: nodeName, generation: 1, resourceSliceCount: 1 };
  const body = {
    kind: 'ResourceSlice',
    metadata: { name: nodeName },
    spec: { driver: testDriver, nodeName, pool, devices },
  };
  await resources.request({ method: 'POST', path: 'resourceslices', body });
  const pods = '/api/v1/namespaces/kube-system/pods';
  const labels = { 'app.kubernetes.io/name': 'netdra' };
  await cluster.admin.client.request({
    ...{ method: 'PATCH', path: `${pods}/netdra-${nodeName}`, contentType: 'application/merge-patch+json' },
    body: { metadata: { labels } },
  });
  await cluster.admin.client.request({
    ...{ method: 'PATCH', path: `${pods}/netdra-${nodeName}/status`, contentType: 'application/merge-patch+json' },
    body: { status: { phase: 'Running', conditions: [{ type: 'Ready', status: 'True' }] } },
  });
}

it('kubectl netdra shows the nodes and claims of a cluster to those who may list them', async () => {
  const taints = [{ key: `${testDriver}/no-carrier`, effect: 'NoSchedule' }];
  await addNode('node-1', [{ name: 'vf-0' }, { name: 'vf-1' }]);
  await addNode('node-2', [{ name: 'vf-0', attributes: { pfName: { string: 'ens1f0' } }, taints }]);
  const pod = buildPod('web-0');
  const claim = buildClaim('fast-net', {
    requests: [{ name: 'vf', deviceClassName: 'netdra-kernel', devices: ['vf-1'] }],
    pods: [pod],
  });
  const { uid: _, ...metadata } = claim.metadata;
  await cluster.createClaim({ ...claim, metadata } as typeof claim);

  const kubeconfig = `--kubeconfig=${cluster.kubeconfigOf('joe')}`;
  const refused = run('status', kubeconfig);
  expect(refused).toMatchObject({ status: 1, stdout: '' });
  expect(refused.stderr).toMatch(
    /^netdra: may not list \w+: .*User "joe" cannot list resource .*ClusterRole netdra-viewer/,
  );
  const binding: KubernetesObject & Record<string, unknown> = {
    ...{ apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRoleBinding', metadata: { name: 'joe' } },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'netdra-viewer' },
    subjects: [{ apiGroup: 'rbac.authorization.k8s.io', kind: 'User', name: 'joe' }],
  };
  await cluster.create(binding);
  await expect.poll(() => run('status', kubeconfig).stderr, { timeout: 30_000 }).toBe('');

  const status = run('status', kubeconfig);
  expect(status.stdout.split('\n')).toEqual([
    'NODE    VERSION  READY  OFFERED  ALLOCATED  IN USE  TAINTED',
    'node-1  test     yes    2        1          1       0',
    'node-2  test     yes    1        0          0       1',
    '',
    'node-2: 1 device of PF ens1f0 tainted: sriov.netdra.dev/no-carrier, NoSchedule',
    '',
    '2 nodes, the driver ready on 2: 3 devices, 1 allocated, 1 in use, 1 tainted',
    '',
  ]);
  expect(status.status).toBe(1);
  expect(JSON.parse(run('status', kubeconfig, '-o', 'json').stdout).nodes).toHaveLength(2);

  const claims = run('claims', kubeconfig);
  expect(claims).toMatchObject({ status: 0, stderr: '' });
  expect(claims.stdout).toMatch(/^default\/fast-net +web-0 +node-1 +vf-1 +not reported/m);
  const none = `no claim has devices of ${testDriver} in namespace other; -A shows all namespaces\n`;
  expect(run('claims', kubeconfig, '--namespace=other')).toMatchObject({ status: 0, stdout: none });
  expect(run('claims', kubeconfig, '-A')).toEqual(claims);
  expect(run('claims', kubeconfig, '--context=lab')).toMatchObject({
    ...{ status: 1, stderr: expect.stringContaining('it has no context lab; it has ') },
  });
  expect(run('statu')).toMatchObject({ status: 2, stderr: expect.stringContaining('(kubectl netdra --help lists') });
}, 120_000);
