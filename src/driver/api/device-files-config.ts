import * as z from 'zod';
import type { DeviceFilesConfig } from '../model/index.ts';
import type { FieldsOf } from './fields-of.ts';

/** The kernel keeps 2^32-1 for "no change". Source: chown(2). */
const maxId = 0xfffffffe;

/** A string, since YAML 1.1 reads 0660 as an octal number, and YAML 1.2 as a decimal one. */
const mode = z
  .string('must be octal digits in quotes, such as "0660"')
  .regex(/^0?[0-7]{3}$/, 'must be octal digits from "0000" to "0777", such as "0660"');

/** vfio and verbs open their files to read and write. A gid alone is for a group of users, which then needs both. */
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
