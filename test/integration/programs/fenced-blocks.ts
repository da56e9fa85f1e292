/** A fenced block of a Markdown text. */
export interface FencedBlock {
  language: string;
  content: string;
  /** Path, from the top of the repository, of the file that the line before the block links to. */
  file?: string;
}

/** The fenced blocks of a text, in their order. */
export function fencedBlocks(markdown: string): FencedBlock[] {
  const blocks: FencedBlock[] = [];
  for (const match of markdown.matchAll(/(?:^\[`([^`\n]+)`\]\([^)\n]*\)\n)?^```(\w*)\n([\s\S]*?)^```$/gm)) {
    const [, file, language = '', content = ''] = match;
    blocks.push({ language, content, ...(file === undefined ? {} : { file }) });
  }
  return blocks;
}

/** The commands of a `console` block, each with the lines that follow it. */
export function consoleCommands(content: string): { command: string; output: string }[] {
  return content
    .split(/^\$ /m)
    .filter((part) => part !== '')
    .map((part) => {
      const end = part.indexOf('\n');
      return { command: part.slice(0, end), output: part.slice(end + 1) };
    });
}
