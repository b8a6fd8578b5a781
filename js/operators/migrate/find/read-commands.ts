/** Reads all commands of a file that matter to locks. */

import { readCommand } from './commands.js';
import type { Commands } from './key-command.js';
import { readOwnCommand } from './script-calls.js';
import { type ReadScript, Scripts } from './scripts.js';
import type { Source } from './source.js';

/** Reads the commands and scripts of a file. */
export function readCommands(source: Source, readFile: ReadScript): Commands {
  const scripts = new Scripts(source, readFile);
  const all = source.calls().flatMap((call) => {
    const command = readCommand(source, call, scripts) ?? readOwnCommand(source, call, scripts);
    return command === undefined ? [] : [command];
  });
  return { all, scripts: scripts.found };
}
