import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import { errnoCode, NetdraError } from '../../lib/errors.ts';

/** A certificate with its chain, and its private key, as PEM. */
export interface TlsPair {
  cert: string;
  key: string;
}

export interface TlsChange extends TlsPair {
  /** Validity of the leaf certificate, which is the first certificate in the file. */
  notBefore: Date;
  notAfter: Date;
}

/** Names of the files, as in a Secret of type `kubernetes.io/tls`. */
const fileNames = { cert: 'tls.crt', key: 'tls.key' };

/** The directory of a mounted TLS Secret, whose files change when the certificate is renewed. */
export class TlsFiles {
  readonly #dir: string;
  #pair: TlsPair | undefined;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /**
   * Reads the files, synchronously, since they are small.
   * @returns the certificate to serve from now on; `undefined` if nothing changed
   * @throws NetdraError `tls-invalid` with the file and its fault
   */
  read(): TlsChange | undefined {
    const pair = { cert: this.#text('cert'), key: this.#text('key') };
    if (pair.cert === this.#pair?.cert && pair.key === this.#pair.key) return undefined;
    const certificate = this.#parse('cert', 'certificate', () => new X509Certificate(pair.cert));
    const key: KeyObject = this.#parse('key', 'private key', () => createPrivateKey(pair.key));
    if (!certificate.checkPrivateKey(key)) {
      throw this.#invalid('key', 'is not the private key of the certificate next to it');
    }
    // Finds all other faults for which OpenSSL rejects a certificate, such as a broken chain or a key that is too small.
    this.#parse('cert', 'certificate that OpenSSL accepts', () => createSecureContext(pair));
    this.#pair = pair;
    const [notBefore, notAfter] = [new Date(certificate.validFrom), new Date(certificate.validTo)];
    return { ...pair, notBefore, notAfter };
  }

  #text(file: keyof typeof fileNames): string {
    try {
      return readFileSync(join(this.#dir, fileNames[file]), 'utf8');
    } catch (cause) {
      throw this.#invalid(file, errnoCode(cause) === 'ENOENT' ? 'does not exist' : 'cannot be read', cause);
    }
  }

  #parse<T>(file: keyof typeof fileNames, what: string, parse: () => T): T {
    try {
      return parse();
    } catch (cause) {
      throw this.#invalid(file, `holds no ${what} in PEM form`, cause);
    }
  }

  #invalid(file: keyof typeof fileNames, problem: string, cause?: unknown): NetdraError {
    const path = join(this.#dir, fileNames[file]);
    const message = `certificate for metrics and probes: ${path} ${problem}`;
    const hint =
      'the Secret of http.tls.secretName must be of type kubernetes.io/tls: tls.crt and tls.key, in PEM form';
    return new NetdraError('tls-invalid', message, { cause, path, hint });
  }
}
