import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ConvertOptions, convertFiles } from '../../../../src/cli/convert/convert.ts';
import { formatRemarks } from '../../../../src/cli/convert/report.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
import { plainTerminal } from '../plain-terminal.ts';

export const options: ConvertOptions = { driverName: testDriver };

/** Converts the text of a file `in.yaml`. */
export async function convertText(text: string, more: Partial<ConvertOptions> = {}) {
  using dir = tempDir();
  const path = join(dir.path, 'in.yaml');
  writeFileSync(path, text);
  const conversion = await convertFiles([path], { ...options, ...more });
  return { ...conversion, remarks: formatRemarks(plainTerminal, conversion.remarks).replaceAll(path, 'in.yaml') };
}
