import type { MarkdownRenderer } from 'vitepress';

type Token = ReturnType<MarkdownRenderer['parse']>[number];

/**
 * Makes links of names in code marks: metrics, events, flags and alerts.
 */
export function linkItems(md: MarkdownRenderer, links: Record<string, string>): void {
  // The generator makes Vue templates of pages, where two braces would begin an expression.
  md.renderer.rules.text = (tokens, index) => md.utils.escapeHtml(tokens[index]!.content).replaceAll('{{', '{&#123;');
  md.core.ruler.push('netdra-items', ({ env, tokens, Token }) => {
    const page: string = env.relativePath ?? '';
    for (const [index, { type, children, content }] of tokens.entries()) {
      if (type !== 'inline' || children === null) continue;
      // An empty cell at the top of a table is no heading to those who hear the page.
      if (content === '' && tokens[index - 1]?.type === 'th_open')
        tokens[index - 1]!.tag = tokens[index + 1]!.tag = 'td';
      // HTML has no links within links.
      let depth = tokens[index - 1]?.type === 'heading_open' ? 1 : 0;
      tokens[index]!.children = children.flatMap((token: Token) => {
        if (token.type === 'code_inline') token.attrSet('v-pre', '');
        depth += token.type === 'link_open' ? 1 : token.type === 'link_close' ? -1 : 0;
        const found = token.type === 'code_inline' && depth === 0 ? find(token.content, page) : undefined;
        if (found === undefined) return [token];
        const open = new Token('link_open', 'a', 1);
        open.attrs = [['href', `${found}.md`]];
        return [open, token, new Token('link_close', 'a', -1)];
      });
    }
  });

  function find(code: string, page: string): string | undefined {
    const name = /--[\w-]+/.exec(code.startsWith('-') ? code : '')?.[0] ?? code;
    const path = Object.hasOwn(links, name) ? links[name] : undefined;
    return `/${page}` === `${path}.md` ? undefined : path;
  }
}
