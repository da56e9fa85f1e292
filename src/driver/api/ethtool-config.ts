import * as z from 'zod';
import type { CoalescingConfig, EthtoolConfig } from '../model/index.ts';
import type { FieldsOf } from './fields-of.ts';

/** Maximum number of features or flags: a card has some sixty features. */
const mostSwitches = 64;

/** Switches by name. A name has at most `ETH_GSTRING_LEN` bytes of Linux `ethtool.h`, with the final NUL. */
const switches = z
  .record(z.string().regex(/^[A-Za-z0-9_.-]{1,31}$/), z.boolean(), {
    error: ({ code }) =>
      code === 'invalid_key' ? 'must be a name of 1 to 31 letters, digits, "_", "." and "-"' : undefined,
  })
  .refine((values) => Object.keys(values).length <= mostSwitches, `must have at most ${mostSwitches} names`)
  .meta({ format: 'switches' });

const ring = z.int().min(1).max(65_536).optional();
const channel = z.int().min(0).max(4_096).optional();
const moderation = z.int().min(0).max(65_536).optional();
const adaptive = z.boolean().optional();
const coalescing = z.strictObject({
  rxUsecs: moderation,
  txUsecs: moderation,
  rxMaxFrames: moderation,
  txMaxFrames: moderation,
  useAdaptiveRx: adaptive,
  useAdaptiveTx: adaptive,
} satisfies FieldsOf<CoalescingConfig>);

export const ethtool = z
  .strictObject({
    features: switches.describe("Offloads, by the kernel's names, on or off.").optional(),
    privateFlags: switches.describe('Flags of the driver, by the names of ethtool --show-priv-flags.').optional(),
    rings: z.strictObject({ rx: ring, tx: ring }).describe('Lengths of a queue, in packets.').optional(),
    channels: z.strictObject({ rx: channel, tx: channel, combined: channel }).describe('Numbers of queues.').optional(),
    coalescing: coalescing.describe('When the VF interrupts: after microseconds or frames.').optional(),
  } satisfies FieldsOf<EthtoolConfig>)
  .describe("Settings of the VF's driver.");
