import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { get as getHttp, type IncomingMessage } from 'node:http';
import { get as getHttps } from 'node:https';
import { dirname } from 'node:path';
import { errnoCode } from '../../lib/errors.ts';
import { replaceFile } from '../../lib/replace-file.ts';

/** Time limit for another program to identify itself, ms. */
const answerTimeoutMs = 2_000;

/**
 * A secret that the instances of the driver on a node share, in a file that only root can read. With it, an instance finds out
 * whether the address that it needs is held by another instance, which will release the address, or by a foreign program.
 */
export class InstanceToken {
  readonly #token: string;

  private constructor(token: string) {
    this.#token = token;
  }

  /**
   * Opens the file of the secret, and creates it if it is missing. @throws the error of Node.js if the file can be neither read
   * nor created
   */
  static open(path: string): InstanceToken {
    const secret = randomBytes(32).toString('base64url');
    try {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, secret, { flag: 'wx', mode: 0o600, flush: true });
    } catch (error) {
      if (errnoCode(error) !== 'EEXIST') throw error;
      // The file may be incomplete after a full disk or a power loss.
      if (readFileSync(path).length < secret.length) replaceFile(path, secret, 0o600);
    }
    return new InstanceToken(readFileSync(path, 'utf8'));
  }

  /** Returns the answer to a challenge. */
  prove(nonce: string): string {
    return createHmac('sha256', this.#token).update(nonce).digest('hex');
  }

  /**
   * Finds out which program holds an address.
   * @returns `free` if nothing listens there any more; `silent` if the program does not answer in time, which may be an
   * instance on a busy node
   */
  async whoHas(held: { host?: string; port: number }): Promise<'instance' | 'foreign' | 'free' | 'silent'> {
    const { host = '127.0.0.1', port } = held;
    const nonce = randomBytes(16).toString('hex');
    const request = { host, port, path: `/identity?nonce=${nonce}` };
    // The other instance may have started before TLS was turned on or off.
    for (const scheme of ['http', 'https'] as const) {
      try {
        const text = await ask(scheme, request);
        const [proof, expected] = [text, this.prove(nonce)].map((each) => Buffer.from(each)) as [Buffer, Buffer];
        if (proof.length === expected.length && timingSafeEqual(proof, expected)) return 'instance';
      } catch (error) {
        if (errnoCode(error) === 'ECONNREFUSED') return 'free';
        if (error instanceof Error && error.name === 'AbortError') return 'silent';
      }
    }
    return 'foreign';
  }
}

/**
 * Reads the start of the response. The proof in it identifies the program, not the certificate. @throws the error of the
 * connection
 */
async function ask(scheme: 'http' | 'https', to: { host: string; port: number; path: string }): Promise<string> {
  const options = { ...to, agent: false, signal: AbortSignal.timeout(answerTimeoutMs) };
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const request =
      scheme === 'http' ? getHttp(options, resolve) : getHttps({ ...options, rejectUnauthorized: false }, resolve);
    request.once('error', reject);
  });
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) {
    text += chunk;
    // A foreign program may send data forever.
    if (text.length >= 64) break;
  }
  return text.slice(0, 64);
}
