import { readFile } from 'node:fs/promises';
import { replaceFile } from './replace-file.ts';

/** Access to text files. Both methods throw the error of Node.js. */
export interface TextFiles {
  read(path: string): Promise<string>;
  /** Writes a file atomically; only root can read it. After an error the old file stays. */
  replace(path: string, text: string): void;
}

/** The text files of this machine. */
export const textFiles: TextFiles = {
  read: (path) => readFile(path, 'utf8'),
  replace: (path, text) => replaceFile(path, text, 0o600),
};
