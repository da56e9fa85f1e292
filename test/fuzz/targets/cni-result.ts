import { isDeepStrictEqual } from 'node:util';
import { findFailure } from '../../../src/node/cni/failure.ts';
import { CniError, cniVersions } from '../../../src/node/cni/index.ts';
import { convertCniResult, decodeCniResult, parseCniResult } from '../../../src/node/cni/result.ts';
import { parseCidr } from '../../../src/node/netlink/index.ts';
import { expectThat, type FuzzTarget, jsonSeeds, utf8 } from '../target.ts';

const subject = { plugin: 'sriov', network: 'fast', cniVersion: '1.0.0' } as const;
const call = { ...subject, command: 'ADD', path: '/opt/cni/bin/sriov', target: 'net1 of container c1' } as const;

/** The output of a plugin: as the result of an ADD, and as an error. */
export const target: FuzzTarget = {
  name: 'cni-result',
  errors: [CniError],
  shape: 'json',
  dictionary: ['__proto__', '"code":7,"msg":"', '::ffff:10.0.0.1/120', '1e400', '[[[['],
  seeds: () => [
    Buffer.from(`{"cniVersion":"1.0.0","a":${'['.repeat(5_000)}${']'.repeat(5_000)}}`),
    ...jsonSeeds(
      {
        cniVersion: '1.0.0',
        interfaces: [
          { name: 'net1', mac: '02:00:00:00:00:01', mtu: 9000, sandbox: '/run/netns/a', pciID: '0000:3b:02.1' },
        ],
        ips: [{ address: '10.1.2.3/24', gateway: '10.1.2.1', interface: 0 }, { address: '2001:db8::1/64' }],
        routes: [{ dst: '0.0.0.0/0', gw: '10.1.2.1', priority: 100, table: 254 }],
        dns: { nameservers: ['10.0.0.53'], domain: 'a.example', search: ['b.example'], options: ['ndots:5'] },
      },
      { cniVersion: '0.4.0', ips: [{ version: '4', address: '10.1.2.3/24', interface: null }], routes: null },
      { cniVersion: '1.0.0', code: 11, msg: 'try again', details: 'busy' },
      {},
    ),
  ],
  run(input) {
    const text = utf8(input);
    const failure = findFailure(
      { exitCode: input.length % 2, endedBy: null, overflowed: false, stdout: text, stderr: text },
      call,
    );
    expectThat(failure === undefined || failure.message.length < 4 * text.length + 2000, 'a message out of proportion');
    const raw = parseCniResult(text, subject);
    const result = decodeCniResult(raw, subject);
    for (const { address } of result.ips) parseCidr(address);
    for (const { dst } of result.routes) parseCidr(dst);
    for (const version of cniVersions) {
      const converted = convertCniResult(raw, version);
      const again = decodeCniResult(parseCniResult(JSON.stringify(converted), subject), subject);
      expectThat(
        isDeepStrictEqual({ ...again, cniVersion: '' }, { ...result, cniVersion: '' }),
        `another result in version ${version}`,
      );
    }
  },
};
