import { readPrograms } from '../../../e2e/cluster/programs.ts';
import type { Bench } from '../bench.ts';
import { callRows, type Load, loadName, type MeasuredCalls, measureNode } from '../go/calls.ts';
import { hookRows, measureHooks } from '../go/hooks.ts';
import { RealLab } from '../go/real-lab.ts';
import { bound } from '../result.ts';

/** Each with the maximum ratio of the medians of prepare and unprepare to Go's. */
const loads: readonly { load: Load; limit?: number }[] = [
  { load: [1, 1], limit: 1.5 },
  { load: [4, 1] },
  { load: [16, 1], limit: 0.8 },
  { load: [1, 16], limit: 2 },
];

/** The kubelet's calls to the driver, compared with those to a Go driver, which does less. */
export const goBench: Bench = {
  name: 'go',
  async run(options) {
    const chosen = options.effort === 'full' ? loads : loads.slice(0, 1);
    const measured = await measureNode(
      options,
      chosen.map(({ load }) => load),
      16,
    );
    const { memory, calls, cpu } = measured;
    return {
      name: 'go',
      about: `NodePrepareResources and NodeUnprepareResources beside upstream's DRA test driver of Kubernetes ${readPrograms(process.env).kubernetesVersion}, with device metadata and without client throttling, which touches no device: in turns, with a real etcd and API server, of which both read claims with the rights of an installed driver.`,
      rows: callRows(measured),
      bounds: [
        ...calls.flatMap((each, index) => callBounds(each, chosen[index]?.limit)),
        // One claim takes less than the kernel's clock can resolve.
        ...(options.effort === 'full'
          ? [bound('CPU for each claim / Go', cpu.netdra.median / cpu.go.median, 2, '×')]
          : []),
        bound('memory after these calls / Go', memory.netdra.median / memory.go.median, 1.2, '×'),
      ],
    };
  },
};

/** The same on a node with the maximum number of VFs that the project promises to serve. */
export const goLargeBench: Bench = {
  name: 'go-512',
  async run(options) {
    const isFull = options.effort === 'full';
    const vfs = isFull ? 512 : 16;
    const growing: readonly Load[] = [
      [1, 1],
      [16, 1],
      [64, 1],
      [1, 16],
      [1, 64],
      [1, 250],
    ];
    const measured = await measureNode(options, isFull ? growing : [[1, 2]], vfs);
    return {
      name: 'go-512',
      about: `The same on a node with ${vfs} VFs, up to the most pods that a kubelet may have.`,
      rows: callRows(measured),
      bounds: [],
    };
  },
};

/** Hooks compared with those of a Go plugin, which does less. */
export const goHookBench: Bench = {
  name: 'go-hook',
  async run(options) {
    await using lab = await RealLab.start(options, 16);
    const devices = await lab.devices(16);
    const hooks = await measureHooks(lab, devices, options.effort === 'full' ? [0, 1, 2, 4, 8] : [0, 1], options);
    const idle = hooks.find(({ vfs }) => vfs === 0)?.run;
    return {
      name: 'go-hook',
      about:
        "RunPodSandbox and StopPodSandbox over ttrpc beside an NRI plugin of ours on containerd's Go stub, which moves links with vishvananda/netlink and sets them up, and does nothing else: e2e/go/nri-plugin.",
      rows: hookRows(hooks),
      bounds:
        idle === undefined
          ? []
          : [bound('hook of a pod without claims / Go', idle.netdra.median / idle.go.median, 2, '×')],
    };
  },
};

function callBounds(each: MeasuredCalls, limit: number | undefined) {
  if (limit === undefined) return [];
  return (['prepare', 'unprepare'] as const).map((what) =>
    bound(`${what} ${loadName(each)} / Go`, each[what].netdra.median / each[what].go.median, limit, '×'),
  );
}
