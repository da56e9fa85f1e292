import { execFileSync } from 'node:child_process';
import { expect } from 'vitest';
import { classConfig, vfConfig } from '../vf-config.ts';
import { linkOf, pfInfoOf, vfAt } from '../vfs.ts';
import { it } from '../vm-test.ts';

interface ReportedEvent {
  reason: string;
  regarding: { kind: string; name: string };
  note: string;
}

const address = '192.0.2.10/24';
const destination = '198.51.100.0/24';

it('netdra restores VLAN and spoof check that VFs in pods have lost, and reports settings that a pod changed', async ({
  node,
  vfs,
}) => {
  const [kernel, dpdk] = [vfAt(vfs, 'pf0', 0), vfAt(vfs, 'pf0', 1)];
  const running = await node.startPod('kept', kernel, [
    classConfig({ vf: { vlan: 7, spoofCheck: true } }),
    vfConfig({ interfaceName: 'net1', addresses: [address], routes: [{ destination, gateway: '192.0.2.1' }] }),
  ]);
  await node.startPod('kept-dpdk', dpdk, [classConfig({ driver: 'vfio-pci', vf: { vlan: 9, spoofCheck: true } })]);
  const asAsked = [
    { vlan: 7, spoofchk: true },
    { vlan: 9, spoofchk: true },
  ];
  const settings = () =>
    [kernel, dpdk].map((vf) => {
      const info = pfInfoOf(vf);
      return { vlan: info?.vlan_list?.[0]?.vlan ?? 0, spoofchk: info?.spoofchk };
    });
  expect(settings()).toEqual(asAsked);

  const { netnsPath } = running.sandbox;
  const takenAt = performance.now();
  for (const vf of [kernel, dpdk]) {
    execFileSync('ip', ['link', 'set', vf.pf, 'vf', `${vf.index}`, 'vlan', '0', 'spoofchk', 'off']);
  }
  const inPod = (...command: string[]) => execFileSync('nsenter', [`--net=${netnsPath}`, ...command]);
  inPod('ip', 'route', 'del', destination);
  inPod('bash', '-c', 'echo 2 >/proc/sys/net/ipv6/conf/net1/accept_ra');
  // Last: the driver follows addresses, and looks at the others when it reads those.
  inPod('ip', 'addr', 'del', address, 'dev', 'net1');
  expect(settings()).toEqual([
    { vlan: 0, spoofchk: false },
    { vlan: 0, spoofchk: false },
  ]);
  const { reconcileIntervalMs } = node.bench.settings;
  const oneRound = { timeout: reconcileIntervalMs + 60_000, interval: 500 };
  await expect.poll(settings, oneRound).toEqual(asAsked);
  console.info(
    `settings are back after ${Math.round(performance.now() - takenAt)} ms, a round is ${reconcileIntervalMs} ms`,
  );

  // The driver may read the pod between two of its changes, and then reports each of them.
  const events = () => {
    const settingsEvents = node.bench.api
      .objects<ReportedEvent>('Event')
      .filter(({ reason }) => /^Settings/.test(reason));
    const lines = settingsEvents.map(({ reason, regarding: { kind, name } }) => `${reason} ${kind} ${name}`);
    return [...new Set(lines)].sort();
  };
  await expect
    .poll(events, oneRound)
    .toEqual([
      'SettingsChanged Pod kept',
      'SettingsChanged ResourceClaim kept',
      'SettingsRestored Pod kept',
      'SettingsRestored Pod kept-dpdk',
      'SettingsRestored ResourceClaim kept',
      'SettingsRestored ResourceClaim kept-dpdk',
    ]);
  console.info(`the address is reported after ${Math.round(performance.now() - takenAt)} ms`);
  const condition = () => {
    const claims = node.bench.api.objects<{
      metadata: { name: string };
      status?: { devices?: { conditions?: { type: string; status: string; reason: string; message: string }[] }[] };
    }>('ResourceClaim');
    const claim = claims.find(({ metadata: { name } }) => name === 'kept');
    return claim?.status?.devices?.[0]?.conditions?.find(({ type }) => type === 'Configured');
  };
  await expect.poll(condition, oneRound).toMatchObject({ status: 'False', reason: 'SettingsChanged' });
  for (const change of [`addresses is missing instead of ${address}`, `routes is missing instead of ${destination}`])
    expect(condition()?.message).toContain(change);
  expect(condition()?.message).toContain('sysctls is net.ipv6.conf.IFNAME.accept_ra=2 instead of');
  // The pod has its address as its own program has left it, and the metadata says so.
  expect(linkOf(kernel, netnsPath)?.addr_info.filter(({ scope }) => scope === 'global')).toEqual([]);
  const device = async () => (await node.metadataOnHost(running)).devices[0];
  expect((await device())?.networkData?.ips ?? []).not.toContain(address);
  // The file may have been written while the VF had no VLAN: then the next reading corrects it.
  await expect.poll(async () => (await device())?.attributes?.vlan, oneRound).toEqual({ int: 7 });
});
