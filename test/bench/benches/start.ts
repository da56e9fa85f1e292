import { spawnSync } from 'node:child_process';
import type { Bench } from '../bench.ts';
import { interleave, timed } from '../interleave.ts';
import { Lab } from '../lab.ts';
import { bound, row } from '../result.ts';
import { summarize } from '../stats.ts';

/** Time from exec until both the kubelet and the runtime have accepted the driver. */
export const startBench: Bench = {
  name: 'start',
  async run(options) {
    await using lab = await Lab.start({ ...options, simulate: { pfs: 1, vfsPerPf: 8 } });
    // The first start creates the simulated VFs, which exist already on a machine with cards.
    await lab.startDriver();
    await lab.devices();
    await lab.stopDriver();
    options.progress('start');
    const rounds =
      options.effort === 'full'
        ? { rounds: 10, perRound: 2, warmUpRounds: 1 }
        : { rounds: 1, perRound: 2, warmUpRounds: 0 };
    const [ours = [], bare = []] = await interleave(
      [
        {
          name: 'netdra',
          async run() {
            const ms = await timed(() => lab.startDriver());
            await lab.stopDriver();
            return ms;
          },
        },
        { name: 'node', run: () => timed(() => runBareNode()) },
      ],
      rounds,
    );
    const [started, node] = [summarize(ours), summarize(bare)];
    return {
      name: 'start',
      about:
        'From exec to registered with the kubelet and with NRI: the driver as the image starts it, with 8 VFs. The reference runs to its end, since that is all it does.',
      rows: [row('exec to registered', 'ms', started, { what: 'node -e 0', ...node })],
      bounds: [bound('exec to registered / node -e 0', started.median / node.median, 5, '×')],
    };
  },
};

function runBareNode(): void {
  const { status } = spawnSync(process.execPath, ['-e', '0']);
  if (status !== 0) throw new Error('node -e 0 failed');
}
