import { describe, expect, it } from 'vitest';
import { type KnownRecords, RecordTable } from '../../../../src/driver/state/record-table.ts';

describe('RecordTable', () => {
  it('caches records only while they exist', () => {
    const stored = new Map<string, string>();
    const known: KnownRecords = { texts: new Map(), names: undefined };
    const table = new RecordTable(
      (sql, dir = '', record = '') => {
        if (sql.startsWith('INSERT')) stored.set(dir, record);
        if (sql.startsWith('DELETE')) stored.delete(dir);
        const found = stored.get(dir);
        return found === undefined ? [] : [{ record: found }];
      },
      () => known,
    );
    expect(table.read('a')).toBeUndefined();
    table.write('a', 'text');
    expect(table.read('a')).toBe('text');
    stored.set('b', 'other');
    expect(table.read('b')).toBe('other');
    expect([...known.texts.keys()]).toEqual(['a', 'b']);
    for (const dir of ['a', 'b', 'never written']) {
      table.delete(dir);
      expect(table.read(dir)).toBeUndefined();
    }
    expect([...known.texts.keys()]).toEqual([]);
  });
});
