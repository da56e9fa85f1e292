import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { tempDir } from '../doubles/temp-dir.ts';
import { ContainerRoot, vf } from '../integration/programs/container-root.ts';
import { findMissing, readerLanguages } from './reader-languages.ts';

const folder = '/var/run/kubernetes.io/dra-device-attributes';
/** File of the first of two drivers. */
const firstFile = `${folder}/resourceclaims/nic/vf/a.example-metadata.json`;
const facts = (generation: number, index: number) =>
  `${generation} 0000:3b:02.${index} net${index} 02:00:00:00:00:0${index} 192.0.2.${index}/24 2001:db8::${index}/64`;

/** As while a device is out of its pod. */
function leaveBlank(path: string): void {
  writeFileSync(path, ' '.repeat(statSync(path).size));
}

/** Waits until the file was read twice, which is what a reader needs to take its content: the kernel notes when a file is read. */
async function readTwice(path: string): Promise<void> {
  for (let read = 0; read < 2; read++) {
    utimesSync(path, 0, new Date());
    await vi.waitFor(() => expect(statSync(path).atimeMs).not.toBe(0), 120_000);
  }
}

/** A reader at work. */
class Reader implements Disposable {
  readonly #child: ChildProcess;
  #stdout = '';
  #stderr = '';
  #exitCode: number | null | undefined;

  constructor([program = '', ...args]: string[], root: string) {
    this.#child = spawn(program, args, { env: { ...process.env, METADATA_ROOT: root } });
    this.#child.stdout?.setEncoding('utf8').on('data', (text) => (this.#stdout += text));
    this.#child.stderr?.setEncoding('utf8').on('data', (text) => (this.#stderr += text));
    this.#child.on('close', (code) => (this.#exitCode = code));
  }

  /** Waits until the lines are what the reader has printed since it was started. */
  async prints(...lines: string[]): Promise<void> {
    const stdout = lines.map((line) => `${line}\n`).join('');
    await this.#until(() => this.#stdout === stdout || this.#stderr !== '');
    expect({ stdout: this.#stdout, stderr: this.#stderr }).toEqual({ stdout, stderr: '' });
  }

  async fails(message: string): Promise<void> {
    await this.#until(() => this.#exitCode !== undefined);
    expect(this.#exitCode).not.toBe(0);
    expect({ stdout: this.#stdout, stderr: this.#stderr }).toEqual({
      stdout: '',
      stderr: expect.stringContaining(message),
    });
  }

  /** Starting a virtual machine of Java beside other work takes seconds. */
  async #until(isDone: () => boolean): Promise<void> {
    await vi.waitUntil(isDone, { timeout: 120_000 }).catch(() => undefined);
  }

  [Symbol.dispose]() {
    this.#child.kill('SIGKILL');
  }
}

/** Each is compiled from the example's own source, and reads files that the driver's own code writes meanwhile. */
describe.each(readerLanguages)('the reader in $name', (language) => {
  const missing = findMissing(language);
  const reads = missing.length === 0 ? it : (title: string) => it.skip(`${title} (no ${missing.join(', ')})`);
  let dir: ReturnType<typeof tempDir>;
  let command: string[];
  let root: ContainerRoot;
  beforeAll(() => {
    dir = tempDir();
    if (missing.length === 0) command = language.build(dir.path);
  });
  afterAll(() => dir[Symbol.dispose]());
  beforeEach(() => {
    root = new ContainerRoot();
  });
  afterEach(() => root[Symbol.dispose]());
  const start = (claim: string) => new Reader([...command, claim, 'vf'], root.path);

  reads('waits for content, prints it, and prints each change', async () => {
    const update = await root.prepare({ claim: 'a-nic-x', podClaimName: 'nic', devices: [vf(9)], driver: 'a.example' });
    const file = join(root.path, folder, 'resourceclaimtemplates/nic/vf/a.example-metadata.json');
    leaveBlank(file);
    using reader = start('nic');
    await readTwice(file);
    await update([vf(1)]);
    await reader.prints(facts(2, 1));
    // Shorter: the rest of the file is blanks.
    await update([{ attributes: { driver: { string: 'iavf' } }, networkData: { interfaceName: 'net2' } }]);
    await reader.prints(facts(2, 1), '3 - net2 -');
    // A list without devices is left out of the file.
    await update([]);
    await readTwice(file);
    await update([vf(3)]);
    await reader.prints(facts(2, 1), '3 - net2 -', facts(5, 3));
  });

  reads('passes over unknown versions, and takes all drivers once each file has content', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)], driver: 'a.example' });
    const text = readFileSync(join(root.path, firstFile), 'utf8');
    const unknown = { apiVersion: 'metadata.resource.k8s.io/v9', metadata: 7, requests: { vf: { devices: 'none' } } };
    root.write(firstFile, `${JSON.stringify(unknown)}\n${text}`);
    const update = await root.prepare({ claim: 'nic', devices: [vf(9)], driver: 'b.example' });
    const file = join(root.path, folder, 'resourceclaims/nic/vf/b.example-metadata.json');
    leaveBlank(file);
    using reader = start('nic');
    await readTwice(file);
    await update([vf(2)]);
    await reader.prints(facts(1, 1), facts(2, 2));
  });

  reads('says that a device has left its pod, and prints it once it is back', async () => {
    const update = await root.prepare({ claim: 'nic', devices: [vf(1)] });
    const file = join(root.path, folder, 'resourceclaims/nic/vf/sriov.netdra.dev-metadata.json');
    using reader = start('nic');
    await reader.prints(facts(1, 1));
    leaveBlank(file);
    await reader.prints(facts(1, 1), 'no content');
    await update([vf(2)]);
    await reader.prints(facts(1, 1), 'no content', facts(2, 2));
  });

  reads('prefers a claim that the pod names to a template claim of the same name', async () => {
    await root.prepare({ claim: 'a-nic-x', podClaimName: 'nic', devices: [vf(1)], driver: 'a.example' });
    await root.prepare({ claim: 'nic', devices: [vf(2)], driver: 'b.example' });
    using reader = start('nic');
    await reader.prints(facts(1, 2));
  });

  reads('fails on a file that is not JSON', async () => {
    root.write(firstFile, '{"apiVersion": broken}');
    using reader = start('nic');
    await reader.fails('');
  });

  reads('fails on a file without a known version', async () => {
    await root.prepare({ claim: 'nic', devices: [vf(1)], driver: 'a.example' });
    root.write(firstFile, readFileSync(join(root.path, firstFile), 'utf8').replaceAll(/\/v1(beta|alpha)1/g, '/v9'));
    using reader = start('nic');
    await reader.fails('no known version');
  });
});
