import { readFile } from 'node:fs/promises';
import { replaceFile } from './replace-file.ts';

/** Text files, by their paths. Both methods throw the Node.js error. */
export interface TextFiles {
  read(path: string): Promise<string>;
  /** In one step; only root can read the file. The old one stays there after an error. */
  replace(path: string, text: string): void;
}

/** The text files of this machine. */
export const textFiles: TextFiles = {
  read: (path) => readFile(path, 'utf8'),
  replace: (path, text) => replaceFile(path, text, 0o600),
};
