/** The rights that an ACL user needs, and the commands that find out whether the user has them. */

import type { ServerAnswer } from '../views/survey.js';
import type { Finding } from './judge.js';

/** One right. */
interface Right {
  /** A command that needs the right, as `ACL DRYRUN` takes it. */
  readonly words: readonly string[];
  /** A command that needs the right and changes nothing: the server rejects its arguments only after the ACL check. */
  readonly trial: readonly string[] | undefined;
  readonly use: Use;
}

/** The features that need a right; `needed` are all of them. */
type Use = 'needed' | 'plain' | 'messages' | 'lists';

const WITHOUT = {
  needed: { level: 'problem', message: 'may not do what locks need' },
  plain: {
    level: 'warning',
    message: 'may not use the common fence counter, or MGET, so scripts take all locks',
  },
  messages: { level: 'warning', message: 'may not send or get messages, so waiters poll' },
  lists: { level: 'warning', message: 'may not list locks: no ls, show and watch' },
} as const;

const USES = Object.keys(WITHOUT) as Use[];
const CHANNEL = 'holdfast:{doctor}';

/** The locks whose rights are checked. */
export interface Scope {
  /** The name of a lock that no client uses. */
  readonly name: string;
  readonly prefix: string;
  readonly db: number;
  readonly cluster: boolean;
  readonly quorum: boolean;
}

function right(text: string, trial: string | null = text, use: Use = 'needed'): Right {
  return { words: text.split(' '), trial: trial?.split(' '), use };
}

/** Every command of holdfast, on the keys of one lock and the counter of its fences. */
export function rights({ name, prefix, db, cluster, quorum }: Scope): Right[] {
  const lock = `${prefix}${name}`;
  const sides = /\{[^}]+\}/.test(lock) ? `${lock}::` : `{${lock}}:`;
  const side = `${sides}queue`;
  const forKey = (key: string) => [
    right(`SET ${key} x`, `SET ${key} x NONSENSE`),
    ...[`GET ${key}`, `DEL ${key}`, `PEXPIRE ${key} 1`].map((text) => right(text)),
  ];
  return [
    ...['INFO server', 'TIME', 'EVAL x 0', 'EVALSHA x 0'].map((text) => right(text)),
    ...forKey(lock),
    ...[`EXISTS ${side}`, `PTTL ${lock}`].map((text) => right(text)),
    ...forKey(side),
    right(`INCRBY ${sides}fence 1`, `INCRBY ${sides}fence nonsense`),
    right(`HSET ${side} x x`, `HSET ${side} x x x`),
    right(`ZADD ${side} 1 x`, `ZADD ${side} nonsense x`),
    ...[`HGET ${side} x`, `HDEL ${side} x`, `ZREM ${side} x`].map((text) => right(text)),
    ...[`ZRANGE ${side} 0 0`, `ZRANGEBYSCORE ${side} 0 0`].map((text) => right(text)),
    ...[`ZRANK ${side} x`, `ZSCORE ${side} x`, `ZCOUNT ${side} 0 0`].map((text) => right(text)),
    ...(db === 0 ? [] : [right(`SELECT ${db}`)]),
    ...(quorum ? [] : plain(cluster ? 'holdfast:{0}:fence' : 'holdfast:fence')),
    ...(cluster ? [right('CLUSTER SLOTS'), right('ASKING', null)] : []),
    ...messages(cluster),
    right('SCAN 0', 'SCAN 0 COUNT 1', 'lists'),
  ];
}

/** The commands on the counter that all locks have in common. Quorums have none. */
function plain(counter: string): Right[] {
  return [
    right(`MGET ${counter}`, undefined, 'plain'),
    right(`GET ${counter}`, undefined, 'plain'),
    right(`SET ${counter} 1`, `SET ${counter} 1 NONSENSE`, 'plain'),
    right(`INCRBY ${counter} 1`, `INCRBY ${counter} nonsense`, 'plain'),
  ];
}

/** The commands of messages. The channel has no listener. A connection that has subscribed could not ask on. */
function messages(cluster: boolean): Right[] {
  const [tried, untried] = cluster
    ? [[`SPUBLISH ${CHANNEL} x`], [`SSUBSCRIBE ${CHANNEL}`, `SUNSUBSCRIBE ${CHANNEL}`]]
    : [[`PUBLISH ${CHANNEL} x`, `PUBSUB NUMSUB ${CHANNEL}`], [`SUBSCRIBE ${CHANNEL}`]];
  return [
    ...tried.map((text) => right(text, text, 'messages')),
    ...untried.map((text) => right(text, null, 'messages')),
  ];
}

/** The commands for the server: one that asks for each right, and if the user is the login, one that tries it. */
export function questions(all: readonly Right[], user: string, isLogin: boolean): string[][] {
  const asked = all.map(({ words }) => ['ACL', 'DRYRUN', user, ...words]);
  return isLogin ? [...asked, ...all.map(({ trial }) => [...(trial ?? ['TIME'])])] : asked;
}

/** A right that is missing, and the server's words about it. */
interface Missing extends Right {
  readonly why: string;
}

/** The ACL rule that grants what is missing. */
function ruleOf(missing: readonly Missing[], name: string): string {
  const rules = missing.map(({ words: [command = '', subject = ''], why }) => {
    if (/channel/.test(why)) return '&holdfast:*';
    if (/\bkeys?\b/.test(why)) return `~${patternOf(subject, name)}`;
    const isSub = ['CLUSTER', 'PUBSUB'].includes(command);
    return `+${isSub ? `${command}|${subject}` : command}`.toLowerCase();
  });
  return [...new Set(rules)].join(' ');
}

/** The pattern of a key: side keys differ in their last word. */
function patternOf(key: string, name: string): string {
  if (!key.includes(name)) return 'holdfast:*';
  return key.replace(name, '*').replace(/(?<=\}:|::)\w+$/, '*');
}

/** Judges the answers. Servers from 7.0 on answer ACL DRYRUN, if the login may ask. */
export function judgeRights(
  all: readonly Right[],
  user: string,
  name: string,
  answers: readonly ServerAnswer[],
): Omit<Finding, 'server'>[] {
  const asked = answers.slice(0, all.length);
  const tried = answers.slice(all.length);
  const told = asked[0]?.refused === false;
  if (!told && tried.length === 0) {
    const message = `the rights of the user ${user} are not known: ${asked[0]?.text ?? 'no answer'}`;
    const advice = 'log in as a user who may run ACL DRYRUN, which servers have from 7.0 on';
    return [{ check: 'rights', level: 'warning', message, advice }];
  }
  const answered = told ? asked : tried;
  const refused = told ? /^(?!OK$)/ : /^NOPERM/;
  const missing = all
    .map((each, i) => ({ ...each, why: answered[i]?.text ?? '' }))
    .filter(({ why, trial }) => refused.test(why) && (told || trial !== undefined));
  if (missing.length === 0) {
    const what = told ? 'all that is needed' : 'all that could be tried without changing anything';
    return [{ check: 'rights', level: 'ok', message: `the user ${user} may do ${what}` }];
  }
  // These are named as well, so that one run names all of them.
  const untried = told ? [] : all.filter(({ trial }) => trial === undefined);
  const others = untried.map(({ words: [command] }) => command).join(', ');
  const and = others === '' ? '' : `; not tried, but needed as well: ${others}`;
  return USES.flatMap((use) => {
    const without = missing.filter((each) => each.use === use);
    if (without.length === 0) return [];
    const { level, message } = WITHOUT[use];
    const commands = without.map(({ words }) => words.join(' ')).join(', ');
    const rule = ruleOf(without, name);
    const advice = `grant ${rule} (docs/operations.md, in the package holdfast, has the whole rule); refused: ${commands.replaceAll(name, 'NAME')}${and}`;
    return [{ check: 'rights', level, message: `the user ${user} ${message}`, advice }];
  });
}
