import { expect, it } from 'vitest';
import { CdiSpecs } from '../../../../../src/framework/metadata/index.ts';

it.each(['metadata', '../x', 'a b', '', '-a', 'a-', '1'])('CdiSpecs rejects the class %j', (name) => {
  expect(() => new CdiSpecs({ dir: '/nowhere', driver: 'a.example', class: name })).toThrow(
    expect.objectContaining({ code: 'metadata-name-invalid', hint: expect.any(String) }),
  );
});
