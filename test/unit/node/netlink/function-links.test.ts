import { expect, it } from 'vitest';
import { FunctionLinks, type Link, type LinkSelector } from '../../../../src/node/netlink/index.ts';

const [first, second] = ['0000:3b:02.0', '0000:3b:02.1'];
const link = (index: number, parentDevice: string, more: Partial<Link> = {}) =>
  ({ index, name: `eth${index}`, parentDevice, ...more }) as Link;

it('FunctionLinks lists all links only if the interface is not found under its last index', async () => {
  let links = [link(4, first), link(5, second)];
  const asked: string[] = [];
  const functions = new FunctionLinks({
    link: async (by: LinkSelector) => {
      asked.push(JSON.stringify(by));
      return links.find(({ index }) => 'index' in by && index === by.index);
    },
    links: async () => {
      asked.push('list');
      return links;
    },
  });
  const find = async (pciAddress: string) => [(await functions.find(pciAddress))?.index, asked.splice(0)];
  expect(await find(first)).toEqual([4, ['list']]);
  expect(await find(first)).toEqual([4, ['{"index":4}']]);
  // It was in a pod, and its index is that of another function.
  links = [link(4, second), link(9, first)];
  expect(await find(first)).toEqual([9, ['{"index":4}', 'list']]);
  links = [link(9, first, { portName: 'pf0vf0' })];
  expect(await find(first)).toEqual([undefined, ['{"index":9}', 'list']]);
  expect(await find(first)).toEqual([undefined, ['list']]);
});
