/** The report for code scanning: SARIF 2.1.0. */

import type { Report } from '../migrate.js';
import { docsOf, RULES, type RuleName } from '../rules.js';

const SCHEMA = 'https://json.schemastore.org/sarif-2.1.0.json';

/** A document with one result for each finding. */
export function asSarif({ found, unread }: Report, version: string): object {
  const names = Object.keys(RULES) as RuleName[];
  const results = found.flatMap(({ path, locks }) =>
    locks.flatMap(({ findings, advice, code }) =>
      findings.map(({ rule, line, column }) => ({
        ruleId: rule,
        ruleIndex: names.indexOf(rule),
        level: RULES[rule].level,
        message: {
          text: `${RULES[rule].sentence}. ${advice}${code === undefined ? '' : `: ${code}`}`,
        },
        locations: [
          {
            physicalLocation: {
              artifactLocation: artifactOf(path),
              region: { startLine: line, startColumn: column },
            },
          },
        ],
      })),
    ),
  );
  const rules = names.map((name) => ({
    id: name,
    shortDescription: { text: RULES[name].sentence },
    help: { text: docsOf(name) },
    defaultConfiguration: { level: RULES[name].level },
  }));
  const driver = { name: 'holdfast migrate', version, rules };
  const notifications = unread.map(({ path, reason }) => ({
    level: 'warning',
    message: { text: `not read: ${reason}` },
    locations: [{ physicalLocation: { artifactLocation: artifactOf(path) } }],
  }));
  const run = {
    tool: { driver },
    columnKind: 'utf16CodeUnits',
    invocations: [{ executionSuccessful: true, toolExecutionNotifications: notifications }],
    results,
  };
  return { $schema: SCHEMA, version: '2.1.0', runs: [run] };
}

/** A file, by an URI below the root of the sources: in a name `#` and `?` are letters like others. */
function artifactOf(path: string): object {
  const uri = path.replaceAll('\\', '/').split('/').map(encodeURIComponent).join('/');
  return { uri, uriBaseId: '%SRCROOT%' };
}
