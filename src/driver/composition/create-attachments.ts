import type { DeviceList } from '../devices/device-list.ts';
import { CniCleanUp } from '../recovery/index.ts';
import { CniAttacher } from '../vf/cni-attacher.ts';
import { Attachments } from '../vf/index.ts';
import type { NodeContext } from './node-context.ts';

/** Creates the parts that move VFs between the host and pods. */
export function createAttachments(
  { kernel, disk: { store, locks }, cni: runner, clock, logger, stack, decorate }: NodeContext,
  devices: DeviceList,
  onConflict: (podUid: string) => void,
) {
  const cni = new CniAttacher({ runner, clock, logger });
  return {
    attachments: new Attachments({
      networks: kernel.networks,
      vfs: decorate('vfs', devices.vfs),
      cni,
      store,
      clock,
      logger,
      onConflict,
    }),
    cniCleanUp: stack.use(new CniCleanUp({ runner, store, locks, clock, logger })),
  };
}
