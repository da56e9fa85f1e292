import { constants } from 'node:os';
import { describe, expect, it } from 'vitest';
import { refused } from '../../../../src/node/netlink/errors.ts';

describe('refused', () => {
  it.each(Object.values(constants.errno))('names a remedy for errno %i', (errno) => {
    expect(refused(-errno, { operation: 'list links' }).hint).toMatch(/./);
  });
});
