/** `holdfast migrate`: the locks that a code base takes by other means, and what is wrong with them. */

import { type Command, Option } from 'commander';
import { printable } from '../../base/printable.js';
import { PeerMissingError } from '../migrate/find/parser.js';
import { migrate, type Report, worstOf } from '../migrate/migrate.js';
import { asSarif } from '../migrate/report/sarif.js';
import { asText, type Tint } from '../migrate/report/text.js';
import { LEVELS, type Level } from '../migrate/rules.js';
import { CliError, EXIT_CODES, Exit, UsageError } from './exit.js';
import { helpText, type Paint, paint, print, printJson } from './terminal.js';
import { version } from './version.js';

interface MigrateOptions {
  readonly json?: boolean;
  readonly sarif?: boolean;
  readonly write?: boolean;
  readonly failOn?: Level;
}

const HELP = `
It reads sources of JavaScript and TypeScript that no .gitignore names, and sends nothing. What is wrong has a rule, which
docs/migrate-rules.md explains. --write keeps formatting and line ends, and changes all files or none, each only if the
result can be parsed; what it leaves is printed with the code to paste. It needs a parser: npm install --save-dev oxc-parser ignore

${EXIT_CODES}
Examples:
  holdfast migrate
  holdfast migrate src --write
  holdfast migrate --fail-on error --sarif > locks.sarif
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
    .option(
      '--write',
      'change what is certain: imports of drop-ins, package.json, locks of the common form',
    )
    .addOption(new Option('--sarif', 'write SARIF, for code scanning').conflicts('json'))
    .option('--json', 'write JSON, also for errors')
    .addHelpText('after', helpText(HELP))
    .action(async (paths: string[], options: MigrateOptions) => {
      end(await run(paths, options));
    });
}

async function run(
  paths: readonly string[],
  { json, sarif, write, failOn }: MigrateOptions,
): Promise<number> {
  const report = await look(paths, write === true);
  if (sarif === true) printJson(asSarif(report, version()));
  else if (json === true) printJson(report);
  else print(asText(report, (how, text) => paint(process.stdout, PAINTS[how], printable(text))));
  if (report.unchanged.length > 0) return Exit.NotWritten;
  const worst = worstOf(report);
  if (failOn === undefined || worst === undefined) return Exit.Done;
  return LEVELS.indexOf(worst) <= LEVELS.indexOf(failOn) ? Exit.No : Exit.Done;
}

async function look(paths: readonly string[], write: boolean): Promise<Report> {
  try {
    return await migrate({ paths, write, version: version(), progress: progress() });
  } catch (error) {
    if (error instanceof PeerMissingError)
      throw new CliError('ERR_PEER_MISSING', Exit.Unavailable, error.message);
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== undefined && /^E(NOENT|NOTDIR|ACCES|PERM|ROFS|ISDIR)$/.test(code))
      throw new UsageError(message);
    throw error;
  }
}

/** How often the line of progress is drawn, in ms. */
const PROGRESS_MS = 100;

/** Draws a line on a terminal while files are read, and clears it after the last. */
function progress(): (done: number, all: number) => void {
  if (!process.stderr.isTTY) return () => {};
  let [next, isDrawn] = [Date.now() + PROGRESS_MS, false];
  return (done, all) => {
    const isLast = done + 1 === all;
    if (isLast ? !isDrawn : Date.now() < next) return;
    [next, isDrawn] = [Date.now() + PROGRESS_MS, true];
    process.stderr.write(isLast ? '\r\x1b[K' : `\r\x1b[K${done} of ${all} files`);
  };
}
