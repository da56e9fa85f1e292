import { describe, expect, it } from 'vitest';
import { formatDeviceKey, isSameDevice, parseDeviceKey } from '../../../../../src/framework/metadata/index.ts';

describe('the key of a device', () => {
  const whole = { driver: 'd.example', pool: 'rack/node-1', name: 'nic-0' };
  it.each([
    [whole, 'd.example/rack/node-1/nic-0'],
    [
      { ...whole, shareId: '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0001' },
      'd.example/rack/node-1/nic-0@0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0001',
    ],
  ])('%o: is formatted as text, and parsed back', (key, text) => {
    expect(formatDeviceKey(key)).toBe(text);
    expect(parseDeviceKey(text)).toEqual(key);
  });

  it.each(['', 'nic-0', 'd.example/nic-0', 'd.example/node-1/', 'd.example/node-1/nic-0@'])(
    'is not parsed from %j',
    (text) => {
      expect(() => parseDeviceKey(text)).toThrow(SyntaxError);
    },
  );

  it('distinguishes shares from each other, and a share from the whole device', () => {
    expect(isSameDevice(whole, { ...whole })).toBe(true);
    expect(isSameDevice(whole, { ...whole, shareId: 'a' })).toBe(false);
    expect(isSameDevice({ ...whole, shareId: 'a' }, { ...whole, shareId: 'b' })).toBe(false);
  });
});
