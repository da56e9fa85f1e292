import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { get } from 'node:https';
import { connect } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type PeerCertificate, type TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { InstanceToken, Operations } from '../../../../src/app/ops/index.ts';
import { parseAddress } from '../../../../src/instance/parse-flags.ts';
import { type Certificate, createCertificate } from '../../../doubles/certificate.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { parseScrape } from '../../../doubles/prometheus.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

let dir: ReturnType<typeof tempDir>;
let logger: RecordingLogger;
let clock: ManualClock;
let versions = 0;
beforeEach(() => {
  dir = tempDir();
  logger = new RecordingLogger();
  clock = new ManualClock();
});
afterEach(() => dir[Symbol.dispose]());

/** Puts files in place as the kubelet does with those of a Secret: a directory for each version, and links to the current one. */
function mount(files: Record<string, string>): void {
  const version = `..version-${++versions}`;
  mkdirSync(join(dir.path, version));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir.path, version, name), text);
  symlinkSync(version, join(dir.path, '..data_tmp'));
  renameSync(join(dir.path, '..data_tmp'), join(dir.path, '..data'));
  for (const name of ['tls.crt', 'tls.key']) {
    rmSync(join(dir.path, name), { force: true });
    symlinkSync(join('..data', name), join(dir.path, name));
  }
}
const filesOf = ({ certificate, key }: Certificate) => ({ 'tls.crt': certificate, 'tls.key': key });

async function start(
  more: { address?: string; waitForAddress?: boolean; token?: InstanceToken; tlsDir?: string } = {},
) {
  const base = { driver: testDriver, version: '1', metadataEnabled: true, clock, logger };
  const operations = await Operations.start({ ...base, address: '127.0.0.1:0', tlsDir: dir.path, ...more });
  const serving = logger.lines.findLast(({ message }) => message === 'serving metrics and probes');
  const { port } = (serving?.fields ?? {}) as { port: number };
  return { port, [Symbol.asyncDispose]: () => operations[Symbol.asyncDispose]() };
}

/** Asks as Prometheus does, with an authority that it trusts. */
async function ask(port: number, path: string, ca: string) {
  return await new Promise<{ status: number | undefined; text: string; subject: string }>((resolve, reject) => {
    get({ host: '127.0.0.1', port, path, ca, agent: false }, async (response) => {
      const { subject } = (response.socket as TLSSocket).getPeerCertificate() as PeerCertificate;
      let text = '';
      for await (const chunk of response.setEncoding('utf8')) text += chunk;
      resolve({ status: response.statusCode, text, subject: String(subject.CN) });
    }).once('error', reject);
  });
}

describe('metrics and probes over HTTPS', () => {
  it("require TLS 1.2 or newer and a client that trusts the certificate's authority", async () => {
    const own = createCertificate('netdra');
    mount(filesOf(own));
    await using server = await start();
    expect(await ask(server.port, '/metrics', own.certificate)).toMatchObject({
      status: 200,
      text: expect.stringContaining('netdra_build_info'),
      subject: 'netdra',
    });
    expect((await ask(server.port, '/healthz', own.certificate)).text).toBe('ok\n');
    expect((await ask(server.port, '/readyz', own.certificate)).status).toBe(503);
    await expect(ask(server.port, '/metrics', createCertificate('other').certificate)).rejects.toThrow();
    await expect(fetch(`http://127.0.0.1:${server.port}/metrics`)).rejects.toThrow();
    // OpenSSL offers TLS 1.1 at this level only.
    const old = connectTls({
      host: '127.0.0.1',
      port: server.port,
      ca: own.certificate,
      minVersion: 'TLSv1.1',
      maxVersion: 'TLSv1.1',
      ciphers: 'ALL:@SECLEVEL=0',
    });
    await expect(once(old, 'secureConnect')).rejects.toThrow(/alert protocol version/);
  });

  it('stop although a client never finishes its handshake', async () => {
    mount(filesOf(createCertificate('netdra')));
    const server = await start();
    using stack = new DisposableStack();
    const silent = connect(server.port, '127.0.0.1');
    stack.defer(() => void silent.destroy());
    await once(silent, 'connect');
    // It is the server that closes the connection.
    const closed = once(silent, 'close');
    await server[Symbol.asyncDispose]();
    await closed;
  });

  it('load a renewed certificate without a restart, and keep the last valid certificate while the files are broken', async () => {
    const [first, second] = [createCertificate('first'), createCertificate('second')];
    mount(filesOf(first));
    await using server = await start();
    const expiry = async (ca: Certificate) => {
      const { text } = await ask(server.port, '/metrics', ca.certificate);
      const series = parseScrape(text);
      return ['netdra_certificate_expiry_timestamp_seconds', 'netdra_certificate_lifetime_seconds'].map((name) =>
        series.get(name),
      );
    };
    const validity = ({ certificate }: Certificate) => {
      const { validFrom, validTo } = new X509Certificate(certificate);
      const [from, to] = [Date.parse(validFrom) / 1_000, Date.parse(validTo) / 1_000];
      return [to, to - from];
    };
    const subject = async (ca: Certificate) => (await ask(server.port, '/healthz', ca.certificate)).subject;
    const reread = async () => {
      clock.advance(10_000);
      await new Promise(setImmediate);
    };
    expect(await subject(first)).toBe('first');
    expect(await expiry(first)).toEqual(validity(first));
    mount({ 'tls.crt': second.certificate, 'tls.key': first.key });
    await reread();
    await reread();
    expect(await subject(first)).toBe('first');
    expect(logger.messages('error')).toEqual([
      'rejected certificate for metrics and probes; the last valid one stays in use',
    ]);
    mount(filesOf(second));
    await reread();
    expect(await subject(second)).toBe('second');
    expect(await expiry(second)).toEqual(validity(second));
    await expect(subject(first)).rejects.toThrow();
  });

  const own = createCertificate('netdra');
  it.each<[string, Record<string, string>, string]>([
    ['no certificate', { 'tls.key': own.key }, 'tls.crt does not exist'],
    ['no key', { 'tls.crt': own.certificate }, 'tls.key does not exist'],
    [
      'a certificate file without a certificate',
      { ...filesOf(own), 'tls.crt': 'x' },
      'tls.crt holds no certificate in PEM form',
    ],
    [
      'a key file without a key',
      { ...filesOf(own), 'tls.key': own.certificate },
      'tls.key holds no private key in PEM form',
    ],
    [
      'the key of another certificate',
      { ...filesOf(own), 'tls.key': createCertificate('other').key },
      'tls.key is not the private key of the certificate next to it',
    ],
  ])('do not start with %s, and name the faulty file', async (_, files, message) => {
    mount(files);
    await expect(start()).rejects.toMatchObject({
      code: 'tls-invalid',
      message: `certificate for metrics and probes: ${dir.path}/${message}`,
      hint: expect.stringContaining('http.tls.secretName'),
    });
  });

  it('tell another instance of the driver from a foreign program on their port, with or without TLS', async () => {
    mount(filesOf(createCertificate('netdra')));
    using state = tempDir();
    const token = InstanceToken.open(join(state.path, 'token'));
    for (const tls of [{ tlsDir: dir.path }, { tlsDir: undefined as unknown as string }]) {
      await using first = await start({ token, ...tls });
      const address = `127.0.0.1:${first.port}`;
      expect(await token.whoHas(parseAddress(address))).toBe('instance');
      await using second = await start({ token, address, waitForAddress: true });
      expect(second).toBeDefined();
      const other = InstanceToken.open(join(state.path, 'other'));
      expect(await other.whoHas(parseAddress(address))).toBe('foreign');
    }
  });
});
