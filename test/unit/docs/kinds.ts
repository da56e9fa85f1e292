const kinds = ['Tutorial', 'How-to', 'Reference', 'Explanation'] as const;

/** The paragraph below a page's title: `*How-to for operators.* With this page you can …`. */
const head = new RegExp(
  `^# .+\\n\\n\\*(?<kind>${kinds.join('|')}) for (?<readers>[^*]+)\\.\\* With this page you can [a-z][^.]{20,}\\.`,
);

/**
 * What is wrong with the kind of a page: its head has to name one kind, its readers and what they can do afterwards, and the
 * table of contents has to list the page under this kind for each of these readers.
 * @param name of the file in `docs`
 * @param contents text of docs/contents.md
 */
export function findKindProblems(name: string, markdown: string, contents: string): string[] {
  const { kind = '', readers = '' } = head.exec(markdown)?.groups ?? {};
  if (kind === '') {
    return [
      `${name} does not begin with *KIND for READERS.* With this page you can …, where KIND is ${kinds.join(', ')}`,
    ];
  }
  return readers.split(/, | and /).flatMap((reader) => {
    const [, cell = ''] = new RegExp(`^\\| ${reader} \\| (.*) \\|$`, 'm').exec(contents) ?? [];
    const [, list = ''] = new RegExp(`\\*\\*${kind}:\\*\\* ([^*]*)`).exec(cell) ?? [];
    return list.includes(`](${name})`) ? [] : [`docs/contents.md does not list ${name} as ${kind} for ${reader}`];
  });
}
