import { execFileSync, spawn } from 'node:child_process';
import { existsSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { describe, expect } from 'vitest';
import { readSnippets } from '../../../test/unit/docs/pages.ts';
import { retry } from '../../node/bench.ts';
import type { Sandbox } from '../../node/pod.ts';
import { classConfig, vfConfig } from '../vf-config.ts';
import { hostVfStates, linkOf, pfInfoOf, type VfState } from '../vfs.ts';
import type { Pod, VmNode } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** Changes that claims make to a VF. */
const changesOf = ({ index }: VfState) => ({
  interfaceName: 'net1',
  macAddress: `02:11:22:33:44:0${index}`,
  mtu: 1400,
  address: `192.0.2.1${index}/24`,
});

/** A pod whose claim changes all settings of a VF; not prepared yet. */
function createPod(node: VmNode, name: string, vf: VfState): Pod {
  const { interfaceName, macAddress, mtu, address } = changesOf(vf);
  return node.createPod(name, vf, [
    classConfig({ macAddress, vf: { trust: true, vlan: 7 } }),
    vfConfig({ interfaceName, mtu, addresses: [address] }),
  ]);
}

/** A process in its own network namespace. */
function holdNetns(): Disposable & { pid: number } {
  const { pid } = spawn('unshare', ['--net', 'sleep', '600'], { stdio: 'ignore' });
  if (pid === undefined) throw new Error('unshare cannot be started');
  while (readlinkSync(`/proc/${pid}/ns/net`) === readlinkSync('/proc/self/ns/net')) execFileSync('sleep', ['0.1']);
  return { pid, [Symbol.dispose]: () => void process.kill(pid, 'SIGKILL') };
}

/** When the pod is stopped: kernel-mode.test.ts. The fixture compares all VFs once more after all pods have ended. */
describe('a VF', () => {
  it('is restored by unprepare if its pod never had a sandbox', async ({ node, vfs }) => {
    const vf = vfs[3]!;
    const pod = createPod(node, 'no-sandbox', vf);
    await node.bench.prepare(pod);
    expect(pfInfoOf(vf)).toMatchObject({ address: changesOf(vf).macAddress, vlan_list: [{ vlan: 7 }] });
    await node.bench.endPod(pod);
    expect(hostVfStates()).toEqual(vfs);
  });

  it('is restored by unprepare if its network namespace was deleted first', async ({ node, vfs }) => {
    const vf = vfs[3]!;
    const { pod, sandbox, container } = await node.runPod(createPod(node, 'no-netns', vf));
    // The namespace's last processes and its last path.
    for (const pid of [await node.bench.pidOf(container), sandbox.pid]) process.kill(pid, 'SIGKILL');
    execFileSync('umount', ['--lazy', sandbox.netnsPath]);
    rmSync(sandbox.netnsPath);
    // The kernel returns the VF as the pod had it, a moment later.
    await expect.poll(() => linkOf(vf), { timeout: 20_000 }).toMatchObject({ address: changesOf(vf).macAddress });
    // The runtime may be about to notice that the pod's processes are gone, and then fails to stop them.
    await retry(() => node.bench.endPod(pod));
    expect(hostVfStates()).toEqual(vfs);
  });

  it('is restored by unprepare after a driver restart even if its network namespace has no path any more', async ({
    node,
    vfs,
  }) => {
    // One with an address from its claim, and one whose address is lost when its driver is rebound.
    const [changed, plain] = [vfs[3]!, vfs[4]!];
    const pods = [
      createPod(node, 'leaked-changed', changed),
      node.createPod('leaked-plain', plain, [vfConfig({ interfaceName: 'net1', mtu: 1400 })]),
    ];
    const sandboxes: Sandbox[] = [];
    for (const pod of pods) sandboxes.push(await node.bench.startPod(pod));
    for (const [index, { netnsPath, pid }] of sandboxes.entries()) {
      const inSandbox = `/proc/${pid}/ns/net`;
      await expect.poll(() => linkOf([changed, plain][index]!, inSandbox)).toMatchObject({ ifname: 'net1' });
      execFileSync('umount', ['--lazy', netnsPath]);
      rmSync(netnsPath);
    }
    for (const { pciAddress } of [changed, plain]) {
      // The inventory recognizes a VF that is elsewhere by this: the directory exists and is empty.
      expect(readdirSync(`/sys/bus/pci/devices/${pciAddress}/net`)).toEqual([]);
    }
    await node.killDriver();
    await node.startDriver();
    for (const pod of pods) await node.bench.kubelet.unprepare(pod);
    expect(hostVfStates()).toEqual(vfs);
    for (const { pid } of sandboxes) expect(existsSync(`/proc/${pid}/ns/net`)).toBe(true);
    for (const pod of pods) await retry(() => node.bench.endPod(pod));
  });

  it('is offered again after another component lost it and the rebind commands in docs/troubleshooting.md ran', async ({
    node,
    vfs,
  }) => {
    const vf = vfs[5]!;
    using holder = holdNetns();
    execFileSync('ip', ['link', 'set', vf.name, 'netns', String(holder.pid)]);
    await expect.poll(() => node.offeredDevices().length, { timeout: 30_000 }).toBe(vfs.length - 1);

    const [commands] = readSnippets('docs/troubleshooting.md').filter(({ info }) => info === 'sh rebind');
    execFileSync('bash', ['-c', commands!.content.replace('0000:3b:02.0', vf.pciAddress)]);
    await expect.poll(() => node.offeredDevices().length, { timeout: 30_000 }).toBe(vfs.length);
    execFileSync('ip', ['link', 'set', linkOf(vf)!.ifname, 'name', vf.name, 'address', vf.address]);
    expect(hostVfStates()).toEqual(vfs);
  });
});
