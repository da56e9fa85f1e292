import { readdirSync } from 'node:fs';
import { expect, it } from 'vitest';
import { CdiSpecs } from '../../../../../src/framework/metadata/index.ts';
import { tempDir } from '../../../../doubles/temp-dir.ts';

it.each(['metadata', '../x', 'a b', '', '-a', 'a-', '1'])('CdiSpecs rejects the class %j', (name) => {
  expect(() => new CdiSpecs({ dir: '/nowhere', driver: 'a.example', class: name })).toThrow(
    expect.objectContaining({ code: 'metadata-name-invalid', hint: expect.any(String) }),
  );
});

it.each([
  ['a device without edits', 'dev', {}, 'there are none'],
  ['a variable without a value', 'dev', { env: ['NAME'] }, '"NAME" is not NAME=value'],
  ['variables as text', 'dev', { env: 'NAME=value' as never }, 'env is not a list'],
  ['a mount that is null', 'dev', { mounts: [null as never] }, 'mounts is not a list'],
  [
    'a relative mount',
    'dev',
    { mounts: [{ hostPath: 'a', containerPath: '/a', options: [] }] },
    'path "a" is not absolute',
  ],
  [
    'a relative mount of the type bind',
    'dev',
    { mounts: [{ type: 'bind', hostPath: 'a', containerPath: '/a', options: [] }] },
    'path "a" is not absolute',
  ],
  [
    'a mount without a source',
    'dev',
    { mounts: [{ type: 'tmpfs', hostPath: '', containerPath: '/a', options: [] }] },
    'the mount at "/a" has no hostPath',
  ],
  [
    'a mount without a target',
    'dev',
    { mounts: [{ hostPath: '/a', containerPath: '', options: [] }] },
    'path "" is not absolute',
  ],
  [
    'a hook that OCI does not define',
    'dev',
    { hooks: [{ hookName: 'x', path: '/a', args: [], timeout: 1 }] },
    '"x" is not',
  ],
  ['a name with a space', 'a b', { env: ['A=1'] }, '"a b" cannot be part of a CDI device\'s name'],
])('CdiSpecs writes nothing for %s, which no runtime accepts', (_what, name, edits, message) => {
  using dir = tempDir();
  const specs = new CdiSpecs({ dir: dir.path, driver: 'a.example', class: 'nic' });
  expect(() => specs.write('u1', name, edits)).toThrow(message);
  expect(readdirSync(dir.path)).toEqual([]);
  const mounts = [{ type: 'tmpfs', hostPath: 'tmpfs', containerPath: '/scratch', options: ['size=1m'] }];
  specs.write('u1', 'dev', { env: ['A=', 'B=1=2\n3'], deviceNodes: [{ path: '/dev/x' }], mounts });
  expect(readdirSync(dir.path)).toHaveLength(1);
});
