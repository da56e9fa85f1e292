import { describe, expect, it } from 'vitest';
import { moduleFiles, parseModulesDep } from '../../../e2e/vm/image/kernel-modules.ts';

const table = `kernel/drivers/net/igb.ko.xz: kernel/drivers/i2c/i2c-algo-bit.ko.xz kernel/drivers/dca/dca.ko.xz
kernel/drivers/dca/dca.ko.xz:
kernel/drivers/i2c/i2c-algo-bit.ko.xz:
kernel/drivers/net/igbvf.ko:
kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz
kernel/net/9p/9pnet.ko.xz: kernel/fs/netfs/netfs.ko.xz
kernel/fs/netfs/netfs.ko.xz:
`;

describe('modules of a kernel', () => {
  const modules = parseModulesDep(table);

  it('come after what they need, each once', () => {
    const files = moduleFiles(modules, ['igb', '9p', 'igbvf']).map((path) => path.split('/').at(-1));
    expect(files).toEqual(
      ['dca.ko.xz', 'i2c-algo-bit.ko.xz', 'igb.ko.xz', 'netfs.ko.xz', '9pnet.ko.xz', '9p.ko.xz'].concat('igbvf.ko'),
    );
  });

  it('are found with the names of modprobe', () => {
    expect(moduleFiles(modules, ['i2c_algo_bit'])).toEqual(['kernel/drivers/i2c/i2c-algo-bit.ko.xz']);
    expect(() => moduleFiles(modules, ['ixgbe'])).toThrow('this kernel has no module ixgbe');
  });
});
