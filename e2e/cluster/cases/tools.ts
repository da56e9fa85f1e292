import { execFile } from 'node:child_process';
import { existsSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import type { ClaimView } from '../../../src/cli/claims.ts';
import type { Finding } from '../../../src/cli/finding.ts';
import type { InventoryView } from '../../../src/driver/devices/inventory-view.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { driverNamespace } from '../node/driver.ts';
import { nodePaths, type RealNode } from '../node/real-node.ts';
import { createPodWithClaim } from '../objects.ts';
import { isSince, readPrograms } from '../programs.ts';

const mainPath = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));

/** The plugin of kubectl. @returns its path */
export function linkPlugin({ dir }: RealNode): string {
  const path = join(dir, 'kubectl-netdra.ts');
  if (!existsSync(path)) symlinkSync(mainPath, path);
  return path;
}

/** The command as operators run it on the node. */
function netdra(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  return runProgram(mainPath, args);
}

export function runProgram(path: string, args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(process.execPath, [path, ...args], { maxBuffer: 64_000_000 }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    );
  });
}

/** What a command prints as JSON. @throws Error with its stderr */
export async function readJson<T>(...args: string[]): Promise<T> {
  const { stdout, stderr } = await netdra(...args, '-o', 'json');
  if (stdout === '') throw new Error(`netdra ${args.join(' ')}: ${stderr}`);
  return JSON.parse(stdout) as T;
}

/** Gives a user the rights that the chart has for viewers. */
function bindViewer(node: RealNode, user: string): Disposable {
  const bindings = [
    { binding: ['clusterrolebinding', user], role: '--clusterrole=netdra-viewer' },
    { binding: ['rolebinding', user, `--namespace=${driverNamespace}`], role: '--role=netdra-viewer' },
  ];
  for (const { binding, role } of bindings) node.kubectl('create', ...binding, role, `--user=${user}`);
  return {
    [Symbol.dispose]: () => {
      for (const { binding } of bindings) node.kubectl('delete', ...binding);
    },
  };
}

/** The tools for operators, beside the installed driver. */
export function describeTools(get: GetCluster, getNode: () => RealNode, simulate: string): void {
  describe("the tools on the driver's node", () => {
    it('doctor finds no problem on a working node, and reports a wrong CDI directory', async () => {
      const { runtime, controlPlane } = getNode();
      const node = [`--cri-socket=${runtime.socketPath}`, `--kubeconfig=${controlPlane.adminKubeconfig}`];
      const findings = await readJson<Finding[]>('doctor', ...node, `--simulate=${simulate}`);
      expect(findings.filter(({ level }) => level === 'problem')).toEqual([]);
      const level = (check: string) => findings.find((finding) => finding.check === check)?.level;
      for (const check of ['NRI', 'CDI', 'API server', 'permissions']) expect(level(check), check).toBe('ok');
      const elsewhere = await readJson<Finding[]>('doctor', ...node, `--cdi-dir=${getNode().dir}`);
      const message = expect.stringContaining('and not at');
      expect(elsewhere).toContainEqual(expect.objectContaining({ check: 'CDI', level: 'problem', message }));
    });

    it('claims, inventory and metadata show where a VF is, and status and claims also run outside the cluster', {
      tags: 'newest',
    }, async () => {
      const { cluster } = get();
      const config = { interfaceName: 'net1', addresses: ['192.0.2.10/24'] };
      await createPodWithClaim(cluster, 'seen', [{ name: 'vf', config }]);
      await cluster.waitUntilRunning('seen');
      const dirs = `--kubelet-plugins-dir=${nodePaths.kubeletPlugins}`;
      const [claim] = await readJson<ClaimView[]>('claims', dirs);
      const place = { in: 'pod', interfaceName: 'net1', pod: `${cluster.namespace}/seen` };
      expect(claim).toMatchObject({ name: 'seen', devices: [{ place, ips: ['192.0.2.10/24'], generation: 1 }] });
      const { devices } = await readJson<InventoryView>('inventory', `--simulate=${simulate}`, dirs);
      expect(devices.find(({ name }) => name === claim?.devices[0]?.device)).toMatchObject({
        claim: `${cluster.namespace}/seen`,
      });
      const { code, stdout } = await netdra('metadata', `${cluster.namespace}/seen`, dirs);
      expect(code).toBe(0);
      expect(stdout).toMatch(/request vf: generation 1\n {2}v1: up to date .*\n {2}kep: up to date/);

      const plugin = linkPlugin(getNode());
      const { adminKubeconfig, authority, server } = getNode().controlPlane;
      const runAs = (kubeconfig: string, args: string[]) => runProgram(plugin, [...args, `--kubeconfig=${kubeconfig}`]);
      const kubectlNetdra = (...args: string[]) => runAs(adminKubeconfig, args);
      const joe = authority.kubeconfig('joe', '/CN=joe', server);
      const refusal = /^netdra: may not list [\w ]+: .*User "joe" cannot list resource .*ClusterRole netdra-viewer/;
      expect(await runAs(joe, ['status'])).toMatchObject({ code: 1, stderr: expect.stringMatching(refusal) });
      using _ = bindViewer(getNode(), 'joe');
      const node = {
        node: cluster.node.name,
        pod: { ready: true, container: 'driver' },
        tainted: 0,
        problems: [],
        withheld: [],
      };
      // The bindings take effect later, and the driver publishes what it withholds some time after its start.
      const status = async () => {
        const { code, stdout, stderr } = await runAs(joe, ['status', '-o', 'json']);
        return { code, stderr, nodes: stdout === '' ? [] : JSON.parse(stdout).nodes };
      };
      await expect.poll(status, { timeout: 60_000 }).toMatchObject({ code: 0, stderr: '', nodes: [node] });
      const state = async () => (await runAs(joe, ['claims', `--namespace=${cluster.namespace}`])).stdout;
      await expect.poll(state, { timeout: 20_000 }).toMatch(/\/seen +seen +\S+ +\S+ +ready +net1 /);
      const metadata = await kubectlNetdra('metadata', 'seen', `--namespace=${cluster.namespace}`);
      expect(metadata.stdout).toMatch(/request vf: generation \d+\n {2}v1: up to date /);
      expect(metadata.code).toBe(0);
      // In the container it does not find the runtime's socket, which is a warning.
      const doctor = await kubectlNetdra('doctor', cluster.node.name);
      expect(doctor.stdout).toMatch(/^ok +NRI: answers .*\n(.*\n)*0 problems, /m);
      expect(doctor.code).toBe(0);
      const out = join(getNode().dir, 'bundle');
      const bundle = await kubectlNetdra('bundle', `--out=${out}`, '-o', 'json');
      expect(JSON.parse(bundle.stdout).missing).toEqual([expect.stringMatching(/driver-previous\.log: .*not found/)]);
      const read = (path: string) => readFileSync(join(out, path), 'utf8');
      expect(read(`nodes/${cluster.node.name}/driver.log`)).toContain('metadata written');
      expect(read(`nodes/${cluster.node.name}/driver-debug.log`)).toMatch(/^\{"level":20,/m);
      expect(JSON.parse(read(`nodes/${cluster.node.name}/claims.json`))).toMatchObject([{ name: 'seen' }]);
    });

    it.runIf(isSince(readPrograms(process.env).kubernetesVersion, '1.37'))(
      'status counts the devices that a DeviceTaintRule taints',
      async () => {
        const { cluster } = get();
        const spec = {
          deviceSelector: { pool: cluster.node.name },
          taint: { key: 'example.com/work', effect: 'NoSchedule' },
        };
        await cluster.apply({
          apiVersion: 'resource.k8s.io/v1',
          kind: 'DeviceTaintRule',
          metadata: { name: 'tools' },
          spec,
        });
        const { authority, server } = getNode().controlPlane;
        const kubeconfig = authority.kubeconfig('ann', '/CN=ann', server);
        await using stack = new AsyncDisposableStack();
        stack.use(bindViewer(getNode(), 'ann'));
        stack.defer(() => cluster.remove('DeviceTaintRule', 'tools'));
        const status = async () => {
          return (await runProgram(linkPlugin(getNode()), ['status', `--kubeconfig=${kubeconfig}`])).stdout;
        };
        const taint = /: \d+ devices of PF \S+ tainted by DeviceTaintRule tools: example.com\/work, NoSchedule/;
        await expect.poll(status, { timeout: 30_000 }).toMatch(taint);
      },
    );
  });
}
