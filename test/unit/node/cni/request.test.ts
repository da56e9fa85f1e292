import { describe, expect, it } from 'vitest';
import { chainTask } from '../../../../src/node/cni/attachment.ts';
import { type CniAttachment, parseCniNetwork } from '../../../../src/node/cni/index.ts';
import { createEnvironment, formatRequest } from '../../../../src/node/cni/request.ts';

const deviceId = '0000:3b:02.1';

function attachmentOf(plugin: object, rest: Partial<CniAttachment> = {}): CniAttachment {
  const network = parseCniNetwork({ cniVersion: '0.4.0', name: 'fast', plugins: [plugin] }, 'test');
  return { network, containerId: 'c1', netnsPath: '/run/netns/a', ifName: 'net1', ...rest };
}

function requestOf(
  plugin: object,
  rest: Partial<CniAttachment> = {},
  prevResult?: Parameters<typeof formatRequest>[2],
) {
  const attachment = attachmentOf(plugin, rest);
  return JSON.parse(formatRequest(attachment.network.plugins[0]!, attachment, prevResult));
}

describe('formatRequest', () => {
  it("overrides the plugin's name and version with the network's", () => {
    const plugin = { type: 'tuning', name: 'other', cniVersion: '0.1.0', mtu: 9000 };
    expect(requestOf(plugin)).toEqual({ type: 'tuning', name: 'fast', cniVersion: '0.4.0', mtu: 9000 });
  });

  it("passes the claim's device to every plugin, instead of a configured device", () => {
    expect(requestOf({ type: 'sriov', deviceID: '0000:00:00.0' }, { deviceId })).toEqual({
      type: 'sriov',
      name: 'fast',
      cniVersion: '0.4.0',
      deviceID: deviceId,
      pciBusID: deviceId,
    });
  });

  it.each(['DeviceID', 'deviceid', 'PCIBusID', 'pcibuſID'])(
    'omits a configured device under a key that Go reads as deviceID or pciBusID: %s',
    (key) => {
      const configured = { type: 'sriov', deviceID: 'x', [key]: '0000:00:00.0' };
      expect(JSON.stringify(requestOf(configured, { deviceId }))).not.toContain('0000:00:00.0');
      expect(requestOf(configured)).toHaveProperty(key);
    },
  );

  it('omits a configured pciBusID if the host-device plugin selects its device by another field', () => {
    const request = requestOf({ type: 'host-device', device: 'veth0', PciBusID: '0000:00:00.0' }, { deviceId });
    expect(JSON.stringify(request)).not.toContain('0000:00:00.0');
  });

  it('does not set pciBusID for host-device if the configuration already names a device', () => {
    const request = requestOf({ type: 'host-device', device: 'veth0' }, { deviceId });
    expect(request).toMatchObject({ device: 'veth0', deviceID: deviceId });
    expect(request).not.toHaveProperty('pciBusID');
    expect(requestOf({ type: 'host-device', HWAddr: '02::' }, { deviceId })).not.toHaveProperty('pciBusID');
    for (const device of [null, '']) {
      expect(requestOf({ type: 'host-device', device }, { deviceId })).toMatchObject({ pciBusID: deviceId });
    }
  });

  it('passes only the capabilities that a plugin declares', () => {
    const capabilities = { mac: '02:00:00:00:00:01', ips: ['10.0.0.1/24'] };
    const plugin = { type: 'sriov', capabilities: { deviceID: true, mac: true, ips: false, portMappings: true } };
    expect(requestOf(plugin, { deviceId, capabilities }).runtimeConfig).toEqual({
      deviceID: deviceId,
      mac: '02:00:00:00:00:01',
    });
    expect(requestOf({ type: 'sriov' }, { deviceId, capabilities })).not.toHaveProperty('runtimeConfig');
  });
});

describe('createEnvironment', () => {
  const options = {
    command: 'ADD' as const,
    netnsPath: '/run/netns/a',
    binDirs: ['/opt/cni/bin', '/x'],
    searchPath: '/bin',
  };

  it('sets CNI_ARGS to an empty text if there are no arguments, and adds IgnoreUnknown on request', () => {
    expect(createEnvironment(attachmentOf({ type: 'x' }), options).CNI_ARGS).toBe('');
    const strict = attachmentOf({ type: 'x' }, { args: { IgnoreUnknown: 'false' } });
    expect(createEnvironment(strict, options).CNI_ARGS).toBe('IgnoreUnknown=false');
  });
});

describe('chainTask', () => {
  it('copies its input, so that later changes by the caller have no effect', () => {
    const attachment = attachmentOf({ type: 'x' }, { args: { A: 'b' } });
    const task = chainTask(attachment);
    attachment.args!.A = 'c';
    expect(task.attachment.args).toEqual({ A: 'b' });
  });

  it.each([
    [{ containerId: '' }, 'is not a container id'],
    [{ containerId: '../x' }, 'is not a container id'],
    [{ containerId: 'a b' }, 'is not a container id'],
    [{ ifName: 'a/b' }, 'is not an interface name'],
    [{ ifName: 'a-name-that-is-too-long' }, 'is not an interface name'],
    [{ netnsPath: 'run/netns/a' }, 'is not an absolute path'],
    [{ netnsPath: '/run\0' }, 'is not an absolute path'],
    [{ args: { 'A;B': 'c' } }, 'argument "A;B=c"'],
    [{ args: { 'A=B': 'c' } }, 'argument "A=B=c"'],
    [{ args: { A: 'b;CNI_COMMAND=DEL' } }, 'argument "A=b;CNI_COMMAND=DEL"'],
  ])('rejects %j', (rest, problem) => {
    expect(() => chainTask(attachmentOf({ type: 'x' }, rest))).toThrow(
      expect.objectContaining({
        code: 'cni-attachment-invalid',
        message: expect.stringContaining(problem),
        network: 'fast',
      }),
    );
  });
});
