import {
  EthtoolConnection,
  type EthtoolState,
  type EthtoolValues,
  NetlinkError,
} from '../../src/node/netlink/index.ts';
import { RequestSocket } from '../../src/node/netlink/socket.ts';

const directions = [
  ['useAdaptiveRx', 'rxUsecs'],
  ['useAdaptiveTx', 'txUsecs'],
] as const;

export interface ModeratingDriverOptions {
  /** What the driver sets `rxUsecs` to when it starts to adapt it, as i40e does with 0. */
  adaptedRxUsecs?: number;
  /** What the driver sets `rxUsecs` to when it no longer adapts it, as mlx5 does. */
  resetRxUsecs?: number;
  /** Takes numbers in an adaptive mode, too, and keeps them, as mlx5 does. */
  takesAll?: boolean;
  /** The largest number that it takes. */
  mostUsecs?: number;
}

/** A link whose driver refuses other times in an adaptive mode, as ice, i40e and iavf do (`ice_set_rc_coalesce`). */
export class ModeratingDriver extends EthtoolConnection {
  values: EthtoolValues;
  readonly #options: ModeratingDriverOptions;

  constructor(values: EthtoolValues, options: ModeratingDriverOptions = {}) {
    const nothing = async () => undefined;
    super(new RequestSocket({ exchange: nothing, ended: nothing, close: nothing }));
    this.values = values;
    this.#options = options;
  }

  override async read(): Promise<EthtoolState> {
    return { coalescing: { ...this.values } };
  }

  override async effective(): Promise<EthtoolValues> {
    return { ...this.values };
  }

  override async set(_index: number, _group: string, values: EthtoolValues): Promise<void> {
    const { adaptedRxUsecs, resetRxUsecs, takesAll = false, mostUsecs = 8_160 } = this.#options;
    const now = this.values;
    const next = { ...now, ...values };
    const isRefused = directions.some(
      ([mode, time]) => (!takesAll && next[mode] && next[time] !== now[time]) || Number(next[time]) > mostUsecs,
    );
    const isAdaptive = next.useAdaptiveRx || next.useAdaptiveTx;
    if (isRefused || (isAdaptive && next.rxUsecsHigh !== now.rxUsecsHigh)) {
      throw new NetlinkError('netlink-refused', 'cannot set coalescing: EINVAL', { errno: 'EINVAL' });
    }
    const ownUsecs = next.useAdaptiveRx ? adaptedRxUsecs : resetRxUsecs;
    if (next.useAdaptiveRx !== now.useAdaptiveRx && ownUsecs !== undefined) next.rxUsecs = ownUsecs;
    this.values = next;
  }
}
