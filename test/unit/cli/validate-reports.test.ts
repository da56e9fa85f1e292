import { describe, expect, it } from 'vitest';
import type { Validation } from '../../../src/cli/validate.ts';
import { formatGithub, sarifOf } from '../../../src/cli/validate-reports.ts';

const validation: Validation = {
  checked: 2,
  faults: [{ file: 'a,b:c.yaml', line: 3, column: 5, field: 'mtu', message: 'is 100 %\nof nothing' }],
  notes: ['b.yaml:1: not compared'],
};

describe('reports of netdra validate', () => {
  it('can be GitHub annotations with escaped separators', () => {
    expect(formatGithub(validation)).toBe(
      '::error file=a%2Cb%3Ac.yaml,line=3,col=5,title=netdra validate::mtu: is 100 %25%0Aof nothing\n' +
        '::notice title=netdra validate::b.yaml:1: not compared\n',
    );
    expect(formatGithub({ checked: 1, faults: [], notes: [] })).toBe('');
  });

  it('can be SARIF 2.1.0 with rule and location of each problem', () => {
    const rule = { id: 'netdra-validate', shortDescription: { text: expect.any(String) } };
    const region = { startLine: 3, startColumn: 5 };
    expect(sarifOf(validation, '1.2.3')).toMatchObject({
      version: '2.1.0',
      runs: [
        {
          tool: { driver: { name: 'netdra', version: '1.2.3', rules: [rule] } },
          results: [
            {
              ruleId: rule.id,
              level: 'error',
              message: { text: 'mtu: is 100 %\nof nothing' },
              locations: [{ physicalLocation: { artifactLocation: { uri: 'a,b:c.yaml' }, region } }],
            },
          ],
          invocations: [{ toolExecutionNotifications: [{ message: { text: 'b.yaml:1: not compared' } }] }],
        },
      ],
    });
  });
});
