import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { errnoCode } from '../errors.ts';

/** How long the instance that has an address may take to say who it is. */
const answerTimeoutMs = 2_000;

/**
 * A secret that the instances of the driver on a node share, in a file that only root can read. With it an instance knows
 * whether the address that it wants is another instance's, which will give it back, or a foreign program's.
 */
export class InstanceToken {
  readonly #token: string;

  private constructor(token: string) {
    this.#token = token;
  }

  /** Makes the file if there is none. @throws the Node.js error of a file that can be neither read nor made */
  static open(path: string): InstanceToken {
    try {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, randomBytes(32).toString('base64url'), { flag: 'wx', mode: 0o600 });
    } catch (error) {
      if (errnoCode(error) !== 'EEXIST') throw error;
    }
    return new InstanceToken(readFileSync(path, 'utf8'));
  }

  /** The answer to a challenge. */
  prove(nonce: string): string {
    return createHmac('sha256', this.#token).update(nonce).digest('hex');
  }

  /**
   * Asks who has an address.
   * @returns `free` if nobody listens there any more
   */
  async whoHas({
    host = '127.0.0.1',
    port,
  }: {
    host?: string;
    port: number;
  }): Promise<'instance' | 'foreign' | 'free'> {
    const nonce = randomBytes(16).toString('hex');
    const url = `http://${host.includes(':') ? `[${host}]` : host}:${port}/identity?nonce=${nonce}`;
    try {
      const answer = await fetch(url, { signal: AbortSignal.timeout(answerTimeoutMs), redirect: 'error' });
      const text = (await answer.text()).slice(0, 64);
      const [proof, expected] = [text, this.prove(nonce)].map((each) => Buffer.from(each)) as [Buffer, Buffer];
      return proof.length === expected.length && timingSafeEqual(proof, expected) ? 'instance' : 'foreign';
    } catch (error) {
      return errnoCode((error as Error).cause) === 'ECONNREFUSED' ? 'free' : 'foreign';
    }
  }
}
