/** The report for code scanning: SARIF 2.1.0. */

import type { Report } from '../migrate.js';
import { docsOf, RULES, type RuleName } from '../rules.js';

const SCHEMA = 'https://json.schemastore.org/sarif-2.1.0.json';

/** A document with one result for each finding. */
export function asSarif({ found }: Report, version: string): object {
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
              artifactLocation: {
                uri: encodeURI(path.replaceAll('\\', '/')),
                uriBaseId: '%SRCROOT%',
              },
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
  return { $schema: SCHEMA, version: '2.1.0', runs: [{ tool: { driver }, results }] };
}
