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

/** Those of the commands that a server has: its ACL takes no others. */
export async function commandsKnownTo(
  server: RedisServer,
  ...names: readonly string[]
): Promise<string[]> {
  const known = (await server.admin.call('COMMAND', 'INFO', ...names)) as unknown[];
  return names.filter((_, i) => known[i] !== null);
}

/** The rules that keep a user from deleting a key, by whichever command the server has for it. */
export async function withoutDeletion(server: RedisServer): Promise<string[]> {
  const names = await commandsKnownTo(server, 'del', 'delex', 'delifeq');
  return names.map((name) => `-${name}`);
}
