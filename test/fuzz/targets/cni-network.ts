import { CniError, parseCniIpam, parseCniNetwork } from '../../../src/node/cni/index.ts';
import { formatRequest } from '../../../src/node/cni/request.ts';
import { expectThat, type FuzzTarget, isSame, jsonSeeds, utf8 } from '../target.ts';

function checkType(type: string): void {
  expectThat(!type.includes('/') && type !== '..' && type !== '.' && type !== '', `a program outside: ${type}`);
}

function checkNetwork(text: string): void {
  const options = { defaultName: 'netdra' };
  const network = parseCniNetwork(text, 'claim ns/c', options);
  expectThat(isSame(parseCniNetwork(network, 'claim ns/c', options), network), 'not the same once more');
  for (const plugin of network.plugins) {
    checkType(plugin.type);
    if (plugin.ipam?.type) checkType(plugin.ipam.type);
    const place = { containerId: 'c1', netnsPath: '/run/netns/a', ifName: 'net1', deviceId: '0000:3b:02.1' };
    const request = JSON.parse(formatRequest(plugin, { network, ...place }));
    expectThat(
      request.type === plugin.type && request.name === network.name,
      'the request names another plugin or network',
    );
  }
}

function checkIpam(text: string): void {
  checkType(parseCniIpam(text, 'claim ns/c', { name: 'netdra' }).ipam.type);
}

function errorOf(task: () => void): unknown {
  try {
    task();
    return undefined;
  } catch (error) {
    return error;
  }
}

/** A network configuration from a claim or a NetworkAttachmentDefinition; it decides which programs run as root. */
export const target: FuzzTarget = {
  name: 'cni-network',
  errors: [CniError],
  shape: 'json',
  dictionary: ['__proto__', 'prevResult', 'runtimeConfig', 'cni.dev/x', '..', '/', '"plugins":[', '[[[['],
  seeds: () =>
    jsonSeeds(
      {
        cniVersion: '1.0.0',
        cniVersions: ['0.4.0', '1.1.0'],
        name: 'fast',
        plugins: [
          {
            type: 'sriov',
            vlan: 7,
            capabilities: { mac: true, deviceID: true },
            ipam: { type: 'host-local', subnet: '10.0.0.0/8' },
          },
          { type: 'tuning', sysctl: { 'net.core.somaxconn': '500' } },
        ],
      },
      { cniVersion: '0.3.1', type: 'host-device', device: 'eth1', ipam: {} },
      { type: 'static', addresses: [{ address: '10.1.1.1/24' }] },
    ),
  run(input) {
    const text = utf8(input);
    // The same text may be valid as one, as the other, or as both.
    const errors = [checkNetwork, checkIpam].map((check) => errorOf(() => check(text)));
    const wrong = errors.find((error) => error !== undefined && !(error instanceof CniError));
    if (wrong !== undefined) throw wrong;
    if (errors.every((error) => error !== undefined)) throw errors[0];
  },
};
