/** `holdfast migrate`: the locks that a code base takes by other means, and what is wrong with them. */

import { type Command, Option } from 'commander';
import { printable } from '../../base/printable.js';
import { PeerMissingError } from '../migrate/find/parser.js';
import { listSources } from '../migrate/find/walk.js';
import { migrate, type Report, worstOf } from '../migrate/migrate.js';
import { asText, type Tint } from '../migrate/report/text.js';
import { LEVELS, type Level } from '../migrate/rules.js';
import { CliError, EXIT_CODES, Exit, UsageError } from './exit.js';
import { type Paint, paint, print, printJson } from './terminal.js';

interface MigrateOptions {
  readonly json?: boolean;
  readonly failOn?: Level;
}

const HELP = `
${EXIT_CODES}
Examples:
  holdfast migrate
  holdfast migrate src --fail-on error
`;

const PAINTS: Readonly<Record<Parameters<Tint>[0], Paint>> = {
  error: 'red',
  warning: 'yellow',
  note: 'green',
  title: 'bold',
  aside: 'dim',
};

/** Adds the command. */
export function addMigrate(program: Command, end: (code: number) => void): void {
  program
    .command('migrate')
    .summary('find locks that other code takes in Redis, and what is wrong with them')
    .description('Find the locks that code takes in Redis by hand or by other packages.')
    .argument('[paths...]', 'files and folders', ['.'])
    .addOption(
      new Option('--fail-on <level>', 'exit with 1 if something is as grave as this').choices(
        LEVELS,
      ),
    )
    .option('--json', 'write JSON, also for errors')
    .addHelpText('after', HELP)
    .action(async (paths: string[], options: MigrateOptions) => {
      end(await run(paths, options));
    });
}

async function run(paths: readonly string[], options: MigrateOptions): Promise<number> {
  const report = await look(paths);
  if (options.json === true) printJson(report);
  else print(asText(report, (how, text) => paint(process.stdout, PAINTS[how], printable(text))));
  const worst = worstOf(report);
  if (options.failOn === undefined || worst === undefined) return Exit.Done;
  return LEVELS.indexOf(worst) <= LEVELS.indexOf(options.failOn) ? Exit.No : Exit.Done;
}

async function look(paths: readonly string[]): Promise<Report> {
  try {
    const files = await listSources(paths);
    return await migrate(files, progressOf(files.length));
  } catch (error) {
    if (error instanceof PeerMissingError)
      throw new CliError('ERR_PEER_MISSING', Exit.Unavailable, error.message);
    const { code, path } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') throw new UsageError(`there is no ${path}`);
    throw error;
  }
}

/** How often the line of progress is drawn, in ms. */
const PROGRESS_MS = 100;

/** Draws a line on a terminal while files are read. */
function progressOf(files: number): (done: number) => void {
  if (!process.stderr.isTTY) return () => {};
  let drawn = Date.now();
  return (done) => {
    if (Date.now() - drawn < PROGRESS_MS) return;
    drawn = Date.now();
    process.stderr.write(`\r\x1b[K${done} of ${files} files`);
  };
}
