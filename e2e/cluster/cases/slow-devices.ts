import { chmodSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { nodePath } from '../../../deploy/image/layout.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { cniPluginDir, driverNamespace } from '../node/driver.ts';
import type { RealNode } from '../node/real-node.ts';
import { testClaim, testClass, testPod } from '../objects.ts';

/** An IPAM plugin that takes 500 ms for each call. The driver's image has no shell. */
const plugin = `#!${nodePath}
setTimeout(() => {
  const [first, second] = require('node:crypto').hash('sha256', process.env.CNI_IFNAME, 'buffer');
  const address = \`198.18.\${first}.\${second}/15\`;
  if (process.env.CNI_COMMAND === 'ADD') console.log(JSON.stringify({ cniVersion: '1.0.0', ips: [{ address }] }));
}, 500);
`;

/** Puts it in the place of a plugin that classes may name by default; disposing puts that back. */
function slowPlugin(node: RealNode, name: string): Disposable {
  const path = join(cniPluginDir(node), name);
  const original = `${path}.original`;
  renameSync(path, original);
  writeFileSync(path, plugin);
  chmodSync(path, 0o755);
  return { [Symbol.dispose]: () => renameSync(original, path) };
}

/** Devices of which each takes long, while the runtime waits 2 s for a plugin. */
export function describeSlowDevices(get: GetCluster, getNode: () => RealNode): void {
  it('slow devices delay a pod until all its VFs are ready, and one event names the device', {
    tags: 'newest',
  }, async () => {
    const { cluster, view } = get();
    const node = getNode();
    using _plugin = slowPlugin(node, 'dhcp');
    const { metadata } = await cluster.create(testClass(cluster, 'slow', { ipam: { type: 'dhcp' } }));
    await using _class = { [Symbol.asyncDispose]: () => cluster.remove('DeviceClass', metadata.name) };
    /** How often the driver has connected to the runtime. */
    const connections = () =>
      node.kubectl('logs', 'daemonset/netdra', '--namespace', driverNamespace).split('connected over NRI').length - 1;
    const before = connections();
    expect(before).toBeGreaterThan(0);

    const claims = ['one', 'two'];
    const request = { name: 'vf', count: 4, deviceClassName: metadata.name };
    for (const name of claims) await cluster.create(testClaim(cluster, name, [request]));
    // What the container finds when it starts.
    const command = ['sh', '-euc', 'netdra-metadata list; trap "exit 0" TERM; sleep 3600 & wait'];
    const podClaims = claims.map((name) => ({ name, resourceClaimName: name }));
    await cluster.create(testPod(cluster, 'many', { claims: podClaims, containers: [{ name: 'main', command }] }));
    await cluster.waitUntilRunning('many');
    const found = async () => (await cluster.log('many', 'main')).trim().split('\n').slice(1);
    await expect.poll(found).toHaveLength(8);
    const links = (await view('many').links()).filter(({ addr_info }) =>
      addr_info?.some(({ local = '' }) => /^198\.1[89]\./.test(local)),
    );
    expect(links).toHaveLength(8);
    const usual = ['Scheduled', 'Pulled', 'Created', 'Started', 'MissingClusterDNS'];
    // On a busy machine prepare may take long, too.
    const events = (await cluster.events()).filter(
      ({ reason, note, regarding: { name } }) =>
        ['many', ...claims].includes(name) && !usual.includes(reason) && !note.includes('devices are prepared'),
    );
    const text =
      /: [1-5] of 8 devices are attached after 3 s; now device .* of claim .*\/(one|two), with IPAM plugin dhcp$/;
    expect(events.map(({ regarding: { kind }, reason, note }) => [kind, reason, note])).toEqual([
      ['Pod', 'WaitingForDevices', expect.stringMatching(text)],
    ]);

    await cluster.remove('Pod', 'many');
    expect(connections()).toBe(before);
  });
}
