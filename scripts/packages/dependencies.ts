/** A package and what it cannot be without: one of each group. */
export type DependencyGraph = Map<string, string[][]>;

/**
 * Reads what `apt-cache depends --recurse` prints: a package at the start of a line, below it `Depends: other` with
 * `|Depends:` before all but the last of several that will do. A virtual package is in angle brackets and is followed
 * by those that provide it, indented deeper.
 */
export function parseAptDepends(text: string): DependencyGraph {
  const graph: DependencyGraph = new Map();
  let groups: string[][] = [];
  let isVirtual = false;
  let isOpen = false;
  for (const line of text.split('\n')) {
    const [, bar, name] = /^ ([ |])(?:Pre)?Depends: (\S+)$/.exec(line) ?? [];
    const provider = /^ {4}(\S+)$/.exec(line)?.[1];
    if (name !== undefined) {
      isVirtual = name.startsWith('<');
      if (!isOpen) groups.push([]);
      if (!isVirtual) groups.at(-1)?.push(name);
      isOpen = bar === '|';
    } else if (provider !== undefined) {
      // A real package can have others that would do in its place: it is what Debian prefers.
      if (isVirtual) groups.at(-1)?.push(provider);
    } else if (line !== '' && !line.startsWith(' ')) {
      groups = [];
      isOpen = false;
      graph.set(line, groups);
    }
  }
  return graph;
}

/**
 * The packages and all that they need, sorted. Where several will do, one that is there anyway is taken, else the first.
 * @param without packages that are left out, with what only they need
 */
export function closeOverDependencies(graph: DependencyGraph, roots: string[], without: string[]): string[] {
  const found = new Set(roots);
  const excluded = new Set(without);
  const queue = [...roots];
  for (let name = queue.shift(); name !== undefined; name = queue.shift()) {
    for (const group of graph.get(name) ?? []) {
      if (group.some((each) => found.has(each) || excluded.has(each))) continue;
      const [chosen] = group;
      if (chosen === undefined) continue;
      found.add(chosen);
      queue.push(chosen);
    }
  }
  return [...found].sort();
}
