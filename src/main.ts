const needed = 24;
const current = process.versions.node;
// Checked before any other module is loaded: older versions cannot even parse the modules.
if (Number(current.split('.')[0]) < needed) {
  process.stderr.write(`netdra: Node.js ${needed} or newer is needed, this is ${current}\n`);
  process.exit(1);
}
const { createKubectlPlugin, createProgram } = await import('./program.ts');
// kubectl runs plugins by file name.
const isPlugin = /\/kubectl(_complete)?-netdra(\.[a-z]+)?$/.test(process.argv[1] ?? '');
await (isPlugin ? createKubectlPlugin() : createProgram()).parseAsync();
