import type { MethodDefinition } from '@grpc/grpc-js';
import { describe, expect, it } from 'vitest';
import { loadProto } from '../../../../src/lib/proto.ts';

/** A method of one of our contracts: what it is called on the wire, and its codecs. */
function method(file: string, service: string, name: string) {
  const methods = loadProto(file)[service] as unknown as Record<string, MethodDefinition<object, object>>;
  const found = methods[name];
  if (found === undefined) throw new Error(`no method ${name}`);
  return found;
}

/** A field of wire type 2: its number, and text or the bytes of what is inside. */
function field(number: number, content: string | Buffer): Buffer {
  const bytes = Buffer.from(content);
  if (number > 15 || bytes.length > 127) throw new Error('one byte each is enough here');
  return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
}

/** A field of wire type 0. */
const varint = (number: number, value: number) => Buffer.from([number << 3, value]);
const message = (...fields: Buffer[]) => Buffer.concat(fields);

const claim = { namespace: 'ns', uid: 'u-1', name: 'c' };
const claimBytes = message(field(1, 'ns'), field(2, 'u-1'), field(3, 'c'));

describe('the registration API', () => {
  it('GetInfo answers with the fields type 1, name 2, endpoint 3, supported_versions 4 (requirement 2.2)', () => {
    const { path, responseSerialize, requestSerialize } = method(
      'plugin-registration.proto',
      'pluginregistration.Registration',
      'GetInfo',
    );
    expect(path).toBe('/pluginregistration.Registration/GetInfo');
    expect(requestSerialize({})).toEqual(Buffer.alloc(0));
    const info = { type: 'DRAPlugin', name: 'd', endpoint: '/e', supportedVersions: ['v1.DRAPlugin', 'x'] };
    expect(responseSerialize(info)).toEqual(
      message(field(1, 'DRAPlugin'), field(2, 'd'), field(3, '/e'), field(4, 'v1.DRAPlugin'), field(4, 'x')),
    );
  });

  it('NotifyRegistrationStatus has the fields plugin_registered 1 and error 2 (requirement 2.2)', () => {
    const { path, requestDeserialize } = method(
      'plugin-registration.proto',
      'pluginregistration.Registration',
      'NotifyRegistrationStatus',
    );
    expect(path).toBe('/pluginregistration.Registration/NotifyRegistrationStatus');
    expect(requestDeserialize(varint(1, 1))).toEqual({ pluginRegistered: true, error: '' });
    expect(requestDeserialize(field(2, 'no'))).toEqual({ pluginRegistered: false, error: 'no' });
  });
});

describe.each(['v1', 'v1beta1'])('the DRA API %s', (version) => {
  const of = (name: string) => method(`dra-${version}.proto`, `k8s.io.kubelet.pkg.apis.dra.${version}.DRAPlugin`, name);

  it('claims have the fields namespace 1, uid 2 and name 3 (requirement 2.3)', () => {
    for (const name of ['NodePrepareResources', 'NodeUnprepareResources']) {
      const { path, requestDeserialize } = of(name);
      expect(path).toBe(`/k8s.io.kubelet.pkg.apis.dra.${version}.DRAPlugin/${name}`);
      expect(requestDeserialize(field(1, claimBytes))).toEqual({ claims: [claim] });
    }
  });

  it('devices have the fields request_names 1, pool_name 2, device_name 3 and cdi_device_ids 4 (requirement 2.3)', () => {
    const device = { requestNames: ['a', 'b'], poolName: 'p', deviceName: 'd', cdiDeviceIds: ['x/y=z'] };
    const deviceBytes = message(field(1, 'a'), field(1, 'b'), field(2, 'p'), field(3, 'd'), field(4, 'x/y=z'));
    const { responseSerialize } = of('NodePrepareResources');
    expect(responseSerialize({ claims: { 'u-1': { devices: [device] } } })).toEqual(
      field(1, message(field(1, 'u-1'), field(2, field(1, deviceBytes)))),
    );
    expect(responseSerialize({ claims: { 'u-1': { error: 'no' } } })).toEqual(
      field(1, message(field(1, 'u-1'), field(2, field(2, 'no')))),
    );
  });

  it('share_id is field 5 in v1, absent unless set, and unknown in v1beta1 (requirement 2.3)', () => {
    const { responseSerialize } = of('NodePrepareResources');
    const bytes = (shareId?: string) =>
      responseSerialize({
        claims: { u: { devices: [{ deviceName: 'd', ...(shareId === undefined ? {} : { shareId }) }] } },
      });
    const expected = (...more: Buffer[]) =>
      field(1, message(field(1, 'u'), field(2, field(1, message(field(3, 'd'), ...more)))));
    expect(bytes()).toEqual(expected());
    expect(bytes('s')).toEqual(version === 'v1' ? expected(field(5, 's')) : expected());
  });

  it('an unprepare response has the field error 1 (requirement 2.3)', () => {
    const { responseSerialize } = of('NodeUnprepareResources');
    expect(responseSerialize({ claims: { u: { error: 'no' } } })).toEqual(
      field(1, message(field(1, 'u'), field(2, field(1, 'no')))),
    );
  });
});

describe.each(['v1', 'v1alpha1'])('the health API %s', (version) => {
  it('streams lists with pool, device, health, time, timeout and message (requirement 2.4)', () => {
    const { path, responseStream, requestStream, responseSerialize } = method(
      `dra-health-${version}.proto`,
      `${version}.DRAResourceHealth`,
      'NodeWatchResources',
    );
    expect(path).toBe(`/${version}.DRAResourceHealth/NodeWatchResources`);
    expect({ requestStream, responseStream }).toEqual({ requestStream: false, responseStream: true });
    const device = {
      device: { poolName: 'p', deviceName: 'd' },
      health: 'UNHEALTHY',
      lastUpdatedTime: 77,
      healthCheckTimeoutSeconds: 30,
      message: 'why',
    };
    const bytes = message(
      field(1, message(field(1, 'p'), field(2, 'd'))),
      varint(2, 2),
      varint(3, 77),
      varint(4, 30),
      field(5, 'why'),
    );
    expect(responseSerialize({ devices: [device] })).toEqual(field(1, bytes));
  });
});
