import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../../../scripts/packages/run.ts';

/** Paths of a certificate and its key, both PEM. */
export interface Certificate {
  certificate: string;
  key: string;
}

/** The certificate authority of a cluster, made by openssl. Everything it signs is valid for two days. */
export class CertificateAuthority {
  readonly own: Certificate;
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
    this.own = this.#paths('ca');
    const { certificate, key } = this.own;
    run('openssl', ['req', '-x509', ...newKey(key), '-subj', '/CN=netdra-e2e', '-days', '2', '-out', certificate]);
  }

  /**
   * Signs a certificate for a client or a server.
   * @param name of the files
   * @param subject as interpreted by Kubernetes: CN is the user, each O a group
   * @param names by which the server is reached: `DNS:kubernetes`, `IP:10.96.0.1`
   */
  sign(name: string, subject: string, names: readonly string[] = []): Certificate {
    const paths = this.#paths(name);
    const request = join(this.#dir, `${name}.csr`);
    const extensions = join(this.#dir, `${name}.ext`);
    run('openssl', ['req', ...newKey(paths.key), '-subj', subject, '-out', request]);
    const usage = 'extendedKeyUsage=clientAuth,serverAuth\n';
    writeFileSync(extensions, names.length === 0 ? usage : `${usage}subjectAltName=${names.join(',')}\n`);
    const authority = ['-CA', this.own.certificate, '-CAkey', this.own.key, '-CAcreateserial'];
    const args = ['x509', '-req', '-in', request, ...authority, '-days', '2', '-extfile', extensions];
    run('openssl', [...args, '-out', paths.certificate]);
    return paths;
  }

  /** Writes a kubeconfig for a user of the API server. @returns its path */
  kubeconfig(name: string, subject: string, server: string): string {
    const { certificate, key } = this.sign(name, subject);
    const base64 = (path: string) => readFileSync(path).toString('base64');
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'e2e',
      clusters: [{ name: 'e2e', cluster: { server, 'certificate-authority-data': base64(this.own.certificate) } }],
      users: [{ name, user: { 'client-certificate-data': base64(certificate), 'client-key-data': base64(key) } }],
      contexts: [{ name: 'e2e', context: { cluster: 'e2e', user: name } }],
    };
    const path = join(this.#dir, `${name}.kubeconfig`);
    writeFileSync(path, JSON.stringify(config, null, 2), { mode: 0o600 });
    return path;
  }

  #paths(name: string): Certificate {
    return { certificate: join(this.#dir, `${name}.crt`), key: join(this.#dir, `${name}.key`) };
  }
}

function newKey(path: string): string[] {
  return ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', path];
}

/** Makes the key that service account tokens are signed with. @returns its path */
export function makeSigningKey(path: string): string {
  run('openssl', ['genrsa', '-out', path, '2048']);
  return path;
}
