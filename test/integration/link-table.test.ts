import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Protocol } from 'netlink';
import { expect, it } from 'vitest';
import { viewClaims } from '../../src/cli/claims.ts';
import { mostPodLinks } from '../../src/driver/vf/networks.ts';
import { encodeString } from '../../src/node/netlink/attributes.ts';
import { RtnlConnection } from '../../src/node/netlink/index.ts';
import { encodeLink, LinkAttribute } from '../../src/node/netlink/link.ts';
import { RequestSocket } from '../../src/node/netlink/socket.ts';
import { TestNetns } from '../doubles/netns.ts';
import { storedClaim, storedDevice } from '../doubles/stored-claims.ts';

/** A pod's network namespace with links that all have the alias of a simulated VF. */
class CrowdedPod implements Disposable {
  readonly #stack = new DisposableStack();
  readonly netns = this.#stack.use(new TestNetns('many'));
  readonly connection = this.#stack.use(RtnlConnection.open(this.#stack.use(this.netns.open())));

  constructor(links: number, alias: string) {
    const lines = Array.from({ length: links }, (_, n) => [`link add d${n} type ifb`, `link set d${n} alias ${alias}`]);
    const batch = join(tmpdir(), `netdra-links-${process.pid}`);
    this.#stack.defer(() => rmSync(batch, { force: true }));
    writeFileSync(
      batch,
      lines
        .flat()
        .map((line) => `${line}\n`)
        .join(''),
    );
    this.netns.exec('ip', '-batch', batch);
  }

  /** Gives each link as many alternative names as fit into a message: 64 KiB. */
  async addNames(): Promise<void> {
    using socket = RequestSocket.open(Protocol.ROUTE, this.#stack.use(this.netns.open()));
    for (const { index, name } of await this.connection.links()) {
      if (name === 'lo') continue;
      for (let part = 0; part < 7; part++) {
        const names = Array.from({ length: 70 }, (_, n) => encodeString(`${name}-${part * 70 + n}-`.padEnd(127, 'z')));
        const value = names.map((each) => ({ type: LinkAttribute.altName, value: each }));
        const payload = encodeLink(index, [{ type: LinkAttribute.propList, value }]);
        await socket.request({ type: 108, flags: 0x600, payload }, { operation: 'add names' });
      }
    }
  }

  [Symbol.dispose](): void {
    this.#stack.dispose();
  }
}

it('looking for a VF among thousands of links blocks the event loop for less than 50 ms', async () => {
  using pod = new CrowdedPod(1_500, 'vf-1');
  const longest: number[] = [];
  for (let run = 0; run < 3; run++) {
    const listed = { messages: 1_000, bytes: Infinity };
    const table = await pod.connection.linkTable({ listed, decoded: 512 });
    const start = process.cpuUsage();
    expect(table.candidates([{ alias: 'vf-1' }])).toHaveLength(512);
    expect(table.isCut?.([{ alias: 'vf-1' }])).toBe(true);
    longest.push(process.cpuUsage(start).user / 1000);
  }
  expect(Math.min(...longest)).toBeLessThan(50);
  const whole = await pod.connection.linkTable();
  expect([whole.all().length, whole.isCut?.([])]).toEqual([1_501, false]);
});

it('looking for a VF stops at 6 MiB if each of the links has hundreds of names', async () => {
  const device = storedDevice({ pciAddress: 'fe00:01:02.1' });
  using pod = new CrowdedPod(110, 'netdra:fe00:01:02.1');
  const of = [{ alias: 'netdra:fe00:01:02.1' }];
  const before = await pod.connection.linkTable(mostPodLinks);
  expect([before.candidates(of).length, before.isCut?.(of)]).toEqual([110, false]);
  await pod.addNames();
  const table = await pod.connection.linkTable(mostPodLinks);
  const links = table.candidates(of);
  expect([links.length < 100, links[0]?.altNames.length, table.isCut?.(of)]).toEqual([true, 490, true]);
  const attachment = { sandboxId: 's', podUid: 'p', podNamespace: 'n', podName: 'p', netnsPath: pod.netns.path };
  const claims = [storedClaim({ devices: [{ ...device, attachment } as never] })];
  const host = { link: async () => undefined, links: async () => [] };
  const [view] = await viewClaims({ claims, host, inspect: async () => undefined });
  const reason = `the pod has too many links in ${pod.netns.path} to search them for its interface`;
  expect(view?.devices[0]?.place).toEqual({ in: 'nowhere', reason });
});
