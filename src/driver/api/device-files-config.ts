import * as z from 'zod';
import type { DeviceFilesConfig } from '../model/index.ts';
import type { FieldsOf } from './fields-of.ts';

/** Largest user or group ID: for the kernel 2^32-1 means "no change". Source: chown(2). */
const maxId = 0xfffffffe;

/** Permissions as a string: as a number, 0660 is octal in YAML 1.1 and decimal in YAML 1.2. */
const mode = z
  .string('must be octal digits in quotes, such as "0660"')
  .regex(/^0?[0-7]{3}$/, 'must be octal digits from "0000" to "0777", such as "0660"');

/**
 * Returns the fault of a mode without read and write permission, which vfio and verbs need. If only a gid is set, the group
 * needs both permissions, otherwise the owner.
 */
function modeFault({ uid, gid, mode }: DeviceFilesConfig): string | undefined {
  if (mode === undefined) return undefined;
  const isForGroup = gid !== undefined && uid === undefined;
  const digit = Number(mode.at(isForGroup ? -2 : -3));
  if (digit >= 6) return undefined;
  return `must let the ${isForGroup ? 'group' : 'owner'} read and write, as "0660" does`;
}

export const deviceFiles = z
  .strictObject({
    uid: z.int().min(0).max(maxId).describe('Owner. Default: that of the runtime.').optional(),
    gid: z.int().min(0).max(maxId).describe('Group. Default: that of the runtime.').optional(),
    mode: mode.describe('Permissions, as octal digits in quotes. Default: those of the runtime.').optional(),
  } satisfies FieldsOf<DeviceFilesConfig>)
  .superRefine((config, context) => {
    const message = modeFault(config);
    if (message !== undefined) context.addIssue({ code: 'custom', path: ['mode'], message });
  })
  .meta({ format: 'device-files' })
  .describe("Owner and permissions of the VF's device files in containers.");
