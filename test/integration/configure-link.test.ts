import { describe, expect, it } from 'vitest';
import { configureLink } from '../../src/driver/vf/configure-link.ts';
import { RtnlConnection } from '../../src/node/netlink/index.ts';
import { TestNetns } from '../doubles/netns.ts';

/** A namespace with two interfaces, of which the first has the default route. */
async function podWithTwoLinks() {
  const stack = new DisposableStack();
  const own = stack.use(new TestNetns());
  const netns = stack.use(own.open());
  const pod = stack.use(RtnlConnection.open(netns));
  for (const name of ['eth0', 'net1']) await pod.createVeth({ name, peer: { name: `${name}p` } });
  for (const name of ['eth0p', 'net1p', 'eth0']) own.exec('ip', 'link', 'set', name, 'up');
  own.exec('ip', 'addr', 'add', '10.0.0.2/24', 'dev', 'eth0');
  own.exec('ip', 'route', 'add', 'default', 'via', '10.0.0.1');
  const link = await pod.link({ name: 'net1' });
  if (link === undefined) throw new Error('net1 was not made');
  const network = { connection: pod, writeSysctls: () => undefined };
  return { own, network, link, [Symbol.dispose]: () => stack.dispose() };
}

describe('configureLink', () => {
  it('can be repeated', async () => {
    using bench = await podWithTwoLinks();
    const config = {
      mtu: 1400,
      macAddress: '02:AA:00:00:00:01',
      addresses: ['192.0.2.2/24', '2001:db8::2/64'],
      routes: [{ destination: '198.51.100.0/24', gateway: '192.0.2.1' }, { destination: '2001:DB8:1::/48' }],
    };
    for (let round = 0; round < 2; round++) await configureLink(bench.network, bench.link, config);
    const [net1] = bench.own.ip('addr', 'show', 'dev', 'net1');
    expect(net1).toMatchObject({ mtu: 1400, address: '02:aa:00:00:00:01' });
    expect(bench.own.exec('ip', 'route', 'show', 'dev', 'net1')).toContain('198.51.100.0/24 via 192.0.2.1');
    expect(bench.own.exec('ip', '-6', 'route', 'show', 'dev', 'net1')).toContain('2001:db8:1::/48');
  });

  it('says so when another interface has the route already', async () => {
    using bench = await podWithTwoLinks();
    const config = { addresses: ['192.0.2.2/24'], routes: [{ destination: '0.0.0.0/0', gateway: '192.0.2.1' }] };
    await expect(configureLink(bench.network, bench.link, config)).rejects.toThrow(
      /add route to 0\.0\.0\.0\/0 via 192\.0\.2\.1.*EEXIST/,
    );
  });
});
