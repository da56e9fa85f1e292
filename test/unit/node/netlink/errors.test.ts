import { constants } from 'node:os';
import { expect, it } from 'vitest';
import { refused } from '../../../../src/node/netlink/errors.ts';

it.each(Object.values(constants.errno))('the error that refused() returns names a remedy for errno %i', (errno) => {
  expect(refused(-errno, { operation: 'list links' }).hint).toMatch(/./);
});
