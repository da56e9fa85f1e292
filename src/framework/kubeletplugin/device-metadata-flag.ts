import { KubeletPluginError } from './errors.ts';

const flag = '--enable-device-metadata';
const variable = 'ENABLE_DEVICE_METADATA';

/**
 * Reads the flag that enables device metadata, `--enable-device-metadata[=true|false]`, from a driver's command line; without
 * the flag, reads the variable `ENABLE_DEVICE_METADATA`. Pass the result to `ClaimMetadata` as `enabled`. The last of repeated
 * flags wins.
 * @returns `false` if neither is given. Source: KEP-5304, "Feature enablement": unset means off
 * @throws KubeletPluginError `invalid-options` for a value other than `true` and `false`
 */
export function deviceMetadataFlag(
  args: readonly string[] = process.argv.slice(2),
  env: Readonly<Record<string, string | undefined>> = process.env,
): boolean {
  const given = args.findLast((arg) => arg === flag || arg.startsWith(`${flag}=`));
  if (given === flag) return true;
  const [name, value] = given === undefined ? [variable, env[variable]] : [flag, given.slice(flag.length + 1)];
  if (value === undefined || (value === '' && given === undefined)) return false;
  if (value === 'true' || value === 'false') return value === 'true';
  const hint = 'pass true or false; the flag without a value means true';
  throw new KubeletPluginError('invalid-options', `${name} is ${JSON.stringify(value)}`, { hint });
}
