/** What the types of the package declare, for the tests that compare pages with it. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { ROOT } from '../support/child.js';

/** A file of the project. */
export const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');

/** The files of the package's source. */
export const sources = readdirSync(join(ROOT, 'js'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts'))
  .map((file) => `js/${file}`);

const program = ts.createProgram(
  sources.map((file) => join(ROOT, file)),
  { module: ts.ModuleKind.NodeNext, noEmit: true, skipLibCheck: true, strict: true },
);
const checker = program.getTypeChecker();

/** The declarations of a name in one file, as a type. */
function typeIn(file: string, name: string): ts.Type {
  const source = program.getSourceFile(join(ROOT, file));
  for (const statement of source?.statements ?? []) {
    const isMeant = ts.isInterfaceDeclaration(statement) || ts.isTypeAliasDeclaration(statement);
    if (isMeant && statement.name.text === name) return checker.getTypeAtLocation(statement);
  }
  throw new Error(`${file} has no type ${name}`);
}

/** The properties of a type. */
export const membersOf = (file: string, name: string) =>
  typeIn(file, name)
    .getProperties()
    .map((property) => property.name);

/** The texts of a union. */
export function textsOf(file: string, name: string): string[] {
  const type = typeIn(file, name);
  const parts = type.isUnion() ? type.types : [type];
  return parts.flatMap((part) => (part.isStringLiteral() ? [part.value] : []));
}

/** The defaults of a type's properties, as their comments give them. */
export function defaultsOf(file: string, name: string): Map<string, string> {
  const properties = typeIn(file, name).getProperties();
  const found = properties.map((property): [string, string] => {
    const tags = property.getJsDocTags(checker).filter((tag) => tag.name === 'default');
    return [property.name, ts.displayPartsToString(tags[0]?.text)];
  });
  return new Map(found);
}
