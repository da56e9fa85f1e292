import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';

/** A self-signed certificate, which is its own authority. PEM. */
export interface Certificate {
  certificate: string;
  key: string;
}

const tags = { bool: 1, integer: 2, bits: 3, octets: 4, oid: 6, utf8: 12, sequence: 0x30, set: 0x31, utcTime: 0x17 };
const oids = {
  commonName: [0x55, 4, 3],
  basicConstraints: [0x55, 0x1d, 0x13],
  subjectAltName: [0x55, 0x1d, 0x11],
  ecdsaWithSha256: [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2],
};

/**
 * Generates a certificate for 127.0.0.1, valid since a day and for some days more, so that no key is stored in the repository.
 * Source: RFC 5280, section 4.1.
 */
export function createCertificate(commonName: string, days = 1): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const algorithm = der(tags.sequence, oid(oids.ecdsaWithSha256));
  const body = certificateBody(commonName, days, publicKey, algorithm);
  const signature = der(tags.bits, Buffer.from([0]), sign('sha256', body, privateKey));
  const encoded = der(tags.sequence, body, algorithm, signature)
    .toString('base64')
    .match(/.{1,64}/g);
  return {
    certificate: `-----BEGIN CERTIFICATE-----\n${encoded?.join('\n')}\n-----END CERTIFICATE-----\n`,
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  };
}

function certificateBody(commonName: string, days: number, publicKey: KeyObject, algorithm: Buffer): Buffer {
  const attribute = der(tags.sequence, oid(oids.commonName), der(tags.utf8, Buffer.from(commonName)));
  const name = der(tags.sequence, der(tags.set, attribute));
  const dayMs = 86_400_000;
  const validity = der(tags.sequence, utcTime(Date.now() - dayMs), utcTime(Date.now() + days * dayMs));
  const isAuthority = der(tags.sequence, der(tags.bool, Buffer.from([0xff])));
  // Context tag 7: an IP address.
  const address = der(tags.sequence, der(0x87, Buffer.from([127, 0, 0, 1])));
  const extensions = der(
    tags.sequence,
    der(tags.sequence, oid(oids.basicConstraints), der(tags.octets, isAuthority)),
    der(tags.sequence, oid(oids.subjectAltName), der(tags.octets, address)),
  );
  const version3 = der(0xa0, der(tags.integer, Buffer.from([2])));
  const serial = der(tags.integer, Buffer.from([1]));
  const key = publicKey.export({ type: 'spki', format: 'der' });
  return der(tags.sequence, version3, serial, algorithm, name, validity, name, key, der(0xa3, extensions));
}

/** One value: tag, length, content. */
function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

function oid(bytes: number[]): Buffer {
  return der(tags.oid, Buffer.from(bytes));
}

function utcTime(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replaceAll(/[-:T]/g, '').slice(2, 14);
  return der(tags.utcTime, Buffer.from(`${digits}Z`));
}
