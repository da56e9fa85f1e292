import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { loadYaml, type V1DaemonSet } from '@kubernetes/client-node';
import { it as base, describe, expect } from 'vitest';
import { Store } from '../../../src/driver/state/index.ts';
import { storedClaim, storedDevice } from '../../doubles/stored-claims.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const manifest = fileURLToPath(new URL('../../../deploy/manifests/remove.yaml', import.meta.url));
const daemonSet = loadYaml<V1DaemonSet>(readFileSync(manifest, 'utf8'));
const [program = '', ...args] = daemonSet.spec?.template.spec?.initContainers?.[0]?.command ?? [];

/** A node's root directory with the driver's directory. */
class Node {
  readonly state: string;
  readonly #host: string;

  constructor(host: string) {
    this.#host = host;
    this.state = join(host, 'var/lib/kubelet/plugins/sriov.netdra.dev');
    mkdirSync(this.state, { recursive: true });
  }

  /** Runs the script of the manifest. @param edit of the script */
  async remove(edit = (script: string) => script): Promise<{ code: number; stderr: string; isGone: boolean }> {
    const texts = args.map((text) => edit(text.replaceAll('/host', this.#host)));
    const { code = 0, stderr } = await promisify(execFile)(program, texts).catch((error) => error);
    return { code, stderr, isGone: !existsSync(this.state) };
  }
}

const it = base.extend<{ node: Node }>({
  node: async ({ task: _ }, use) => {
    using dir = tempDir();
    await use(new Node(dir.path));
  },
});

describe('deploy/manifests/remove.yaml', () => {
  it('removes the state of a driver that has no claims', async ({ node }) => {
    new Store(join(node.state, 'state.db'))[Symbol.dispose]();
    expect(await node.remove()).toEqual({ code: 0, stderr: '', isGone: true });
    expect(await node.remove()).toMatchObject({ code: 0, isGone: true });
  });

  it('keeps the state while a driver answers', async ({ node }) => {
    const server = createServer().listen(join(node.state, 'tools.sock'));
    await once(server, 'listening');
    expect(await node.remove()).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('/tools.sock'),
      isGone: false,
    });
    server.close();
  });

  it('keeps the state, and names the claims, while their VFs are not restored', async ({ node }) => {
    // Open, so that the files are those of a killed driver: most of the state is in the log of SQLite.
    using store = new Store(join(node.state, 'state.db'));
    store.putClaim(storedClaim({ devices: [storedDevice()] }));
    const lost = storedDevice({ name: 'dev-2', pciAddress: '0000:3b:02.2' });
    store.putUnrestored({ device: lost, reason: 'no such device' });
    const kept = await node.remove();
    expect(kept).toMatchObject({ code: 1, isGone: false });
    expect(kept.stderr).toMatch(
      /state\.db has claim apps\/nic, device sriov\.netdra\.dev\/node-1\/dev-2: install the driver again/,
    );
    expect(existsSync(join(node.state, 'state.db'))).toBe(true);
    const forced = await node.remove((script) => script.replace('evenWithClaims = false', 'evenWithClaims = true'));
    expect(forced).toMatchObject({ code: 0, isGone: true });
  });

  it('keeps state that it cannot read, and says how to remove it', async ({ node }) => {
    writeFileSync(
      join(node.state, 'state.db'),
      'no database, though it is as long as the header of one: 100 bytes'.repeat(3),
    );
    const kept = await node.remove();
    expect(kept).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/not a database.*evenWithClaims/),
      isGone: false,
    });
  });
});
