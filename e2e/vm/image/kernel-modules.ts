/** Kernel modules by the path below the folder of their kernel, each with those that it needs, all levels of them. */
export type ModuleDependencies = Map<string, string[]>;

/** Reads `modules.dep`: lines like `kernel/a.ko.xz: kernel/b.ko.xz kernel/c.ko.xz`. Source: modules.dep(5). */
export function parseModulesDep(text: string): ModuleDependencies {
  const entries = text.split('\n').flatMap((line) => {
    const [path, needed] = line.split(':');
    return path === undefined || needed === undefined ? [] : [[path, needed.split(' ').filter(Boolean)] as const];
  });
  return new Map(entries);
}

/**
 * The files of the modules with all that they need, in the order in which they can be loaded.
 * @param names as modprobe takes them, with `_` for `-`
 * @throws Error for a name that is not there
 */
export function moduleFiles(modules: ModuleDependencies, names: string[]): string[] {
  const byName = new Map([...modules.keys()].map((path) => [moduleName(path), path]));
  const ordered = names.flatMap((name) => {
    const path = byName.get(name);
    if (path === undefined) throw new Error(`this kernel has no module ${name}`);
    // What is needed first is last in the file.
    return [...(modules.get(path) ?? []).toReversed(), path];
  });
  return [...new Set(ordered)];
}

function moduleName(path: string): string {
  const file = path.slice(path.lastIndexOf('/') + 1);
  return file.replace(/\.ko(\.\w+)?$/, '').replaceAll('-', '_');
}
