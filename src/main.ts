import { createProgram } from './app/program.ts';

await createProgram().parseAsync();
