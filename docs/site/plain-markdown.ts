import type { MarkdownRenderer } from 'vitepress';

/** Shows pages as a Git host does: braces are text, and an empty cell at the top of a table is no heading. */
export function plainMarkdown(md: MarkdownRenderer): void {
  // The generator makes Vue templates of pages, where two braces would begin an expression.
  md.renderer.rules.text = (tokens, index) => md.utils.escapeHtml(tokens[index]!.content).replaceAll('{{', '{&#123;');
  md.core.ruler.push('netdra-plain', ({ tokens }) => {
    for (const [index, { type, children, content }] of tokens.entries()) {
      if (type !== 'inline') continue;
      if (content === '' && tokens[index - 1]?.type === 'th_open')
        tokens[index - 1]!.tag = tokens[index + 1]!.tag = 'td';
      for (const child of children ?? []) if (child.type === 'code_inline') child.attrSet('v-pre', '');
    }
  });
}
