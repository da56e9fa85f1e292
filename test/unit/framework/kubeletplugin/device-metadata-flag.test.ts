import { describe, expect, it } from 'vitest';
import { deviceMetadataFlag } from '../../../../src/framework/kubeletplugin/index.ts';

describe('deviceMetadataFlag', () => {
  it.each<[string[], Record<string, string>, boolean]>([
    [[], {}, false],
    [['--enable-device-metadata'], {}, true],
    [['--enable-device-metadata=true'], { ENABLE_DEVICE_METADATA: 'false' }, true],
    [['--enable-device-metadata=true', '--enable-device-metadata=false'], {}, false],
    [['--enable-device-metadata-too'], {}, false],
    [[], { ENABLE_DEVICE_METADATA: 'true' }, true],
    [[], { ENABLE_DEVICE_METADATA: '' }, false],
  ])('reads %j with the environment %j as %s', (args, env, enabled) => {
    expect(deviceMetadataFlag(args, env)).toBe(enabled);
  });

  it.each<[string[], Record<string, string>, string]>([
    [['--enable-device-metadata=yes'], {}, '--enable-device-metadata is "yes"'],
    [['--enable-device-metadata='], {}, '--enable-device-metadata is ""'],
    [[], { ENABLE_DEVICE_METADATA: '1' }, 'ENABLE_DEVICE_METADATA is "1"'],
  ])('rejects %j with the environment %j', (args, env, message) => {
    expect(() => deviceMetadataFlag(args, env)).toThrow(expect.objectContaining({ code: 'invalid-options', message }));
  });
});
