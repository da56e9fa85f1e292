import { expect, it } from 'vitest';
import { RecordedFiles } from '../../../../src/driver/recovery/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';

it('RecordedFiles restores files in a later round if the disk failed at startup', async () => {
  const answers = [[new Error('EIO')], undefined, []];
  let asked = 0;
  const restoreMetadata = async () => {
    const answer = answers[asked++];
    if (answer === undefined) throw new Error('the store cannot be read');
    return answer;
  };
  const logger = new RecordingLogger();
  const files = new RecordedFiles({ restoreMetadata }, logger);
  for (let round = 0; round < 5; round++) await files.restore();
  expect(asked).toBe(3);
  expect(logger.lines.map(({ fields }) => String(fields.err))).toEqual([
    'Error: EIO',
    'Error: the store cannot be read',
  ]);
});
