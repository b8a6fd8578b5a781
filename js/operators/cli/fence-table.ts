/** `holdfast fence-table`: the statement that makes the table for `holdfast/fence`. */

import { Argument, type Command } from 'commander';
import { DIALECTS, type FenceDialect, fenceTable } from '../../fence/table.js';
import { EXIT_CODES, Exit } from './exit.js';
import { helpText, print, printJson } from './terminal.js';

const HELP = `
Nothing is connected to: put the statement into a migration.

${EXIT_CODES}
Examples:
  holdfast fence-table postgres | psql "$DATABASE_URL"
`;

/** Adds the command. */
export function addFenceTable(program: Command, end: (code: number) => void): void {
  program
    .command('fence-table')
    .summary('print the SQL of the table of fences')
    .description('Print the statement that makes the table in which holdfast/fence keeps fences.')
    .addArgument(new Argument('<dialect>', 'the kind of database').choices(DIALECTS))
    .option('--json', 'write JSON, also for errors')
    .addHelpText('after', helpText(HELP))
    .action((dialect: FenceDialect, { json }: { readonly json?: true }) => {
      const sql = `${fenceTable(dialect)};`;
      if (json === true) printJson({ dialect, sql });
      else print(sql);
      end(Exit.Done);
    });
}
