/** The user that docs/operations.md tells operators to make. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './child.js';
import type { RedisServer } from './server.js';

export interface AclUser {
  readonly name: string;
  readonly password: string;
  /** What it may do, as the page says it, word for word. */
  readonly rules: readonly string[];
}

/** Reads the rule out of the page, with what it adds for the given purposes. */
export function leastRights(...purposes: readonly string[]): AclUser {
  const page = readFileSync(join(ROOT, 'docs', 'operations.md'), 'utf8');
  const found = /^ACL SETUSER (\S+) on >(\S+) (.+)$/m.exec(page);
  if (found === null) throw new Error('docs/operations.md tells no ACL rule');
  const [, name = '', password = '', rules = ''] = found;
  const added = purposes.map((purpose) => {
    const line = page.split('\n').find((each) => each.startsWith('+') && each.includes(purpose));
    if (line === undefined) throw new Error(`docs/operations.md tells no ACL rule for ${purpose}`);
    return line.split('#')[0]?.trim() ?? '';
  });
  return { name, password, rules: [rules, ...added].join(' ').split(' ') };
}

/** Makes the user on `server`, and answers the URL by which it logs in. */
export async function enrol(server: RedisServer, user: AclUser): Promise<string> {
  const { name, password, rules } = user;
  await server.admin.call('ACL', 'SETUSER', name, 'reset', 'on', `>${password}`, ...rules);
  return server.url.replace('//', `//${name}:${password}@`);
}
