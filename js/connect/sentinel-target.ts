/** A master that Sentinels name. */

import { checkObject, checkText } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import { checkLogin, type Endpoints, NOWHERE, type Sentinel } from './endpoints.js';
import { checkLoginParts, type Login } from './login.js';
import type { SentinelAddress, SentinelTarget } from './target.js';
import { checkAllTls, checkHost, checkParts, invalid, whole } from './target-parts.js';
import { hrefOf, parse, SERVER_SCHEMES, tcpTarget } from './url-target.js';

const DEFAULT_PORT = 26_379;
const OPTIONS = [
  'credentials',
  'db',
  'master',
  'password',
  'sentinelCredentials',
  'sentinelPassword',
  'sentinels',
  'sentinelUsername',
  'username',
];

/** Reads the Sentinels and the name of their master. @internal */
export function sentinelTarget(given: object): Endpoints {
  const target = checkObject<SentinelTarget>(given, OPTIONS, 'a Sentinel target');
  const { sentinels, master } = target;
  if (!Array.isArray(sentinels) || sentinels.length === 0) {
    const message = 'Sentinels need a list: { sentinels: [urls], master }';
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  checkText(master, 'master');
  if (master === '') throw invalid('master must be what the Sentinels call the master, not empty');
  const login = checkParts(target);
  const ofSentinels = sentinelLogin(target);
  const all = sentinels.map((each, i) => sentinel(each, `sentinels[${i}]`, ofSentinels));
  const [{ host, port, tls }] = all as [Sentinel];
  checkAllTls(all, 'Sentinels and their master');
  for (const each of all) checkLogin(each, `the Sentinel ${each.host}:${each.port}`);
  const which = login.db === 0 ? '' : `, database ${login.db}`;
  return {
    ...NOWHERE,
    ...login,
    tls,
    sentinels: all,
    master,
    label: `the master "${master}" of the Sentinel ${host}:${port}${which}`,
  };
}

function sentinelLogin(target: SentinelTarget): Login {
  const { sentinelUsername, sentinelPassword, sentinelCredentials } = target;
  const name = (part: string) => `sentinel${part.charAt(0).toUpperCase()}${part.slice(1)}`;
  return checkLoginParts(sentinelUsername, sentinelPassword, sentinelCredentials, name);
}

function sentinel(given: unknown, what: string, login: Login): Sentinel {
  const text = hrefOf(given);
  if (typeof text === 'string') return sentinelOf(text, what, login);
  if (typeof given !== 'object' || given === null) {
    const message = `${what} must be a URL, 'host:port' or { host, port }, got a value of type ${typeof given}`;
    throw argumentError('ERR_INVALID_ARG_TYPE', message);
  }
  const address = checkObject<SentinelAddress>(given, ['host', 'port'], what);
  const { host, port = DEFAULT_PORT } = address;
  checkHost(host, `${what}.host`);
  return { host, port: whole(port, `${what}.port`, 1, 65_535), tls: null, ...login };
}

function sentinelOf(text: string, what: string, login: Login): Sentinel {
  const complaint = `${what} is not host:port and not a URL that begins with ${SERVER_SCHEMES}`;
  const given = text.includes('://') ? text : `redis://${text}`;
  const url = parse(given, complaint);
  const known = /^(redis|valkey)s?:$/.test(url.protocol);
  if (!known || url.hostname === '') throw invalid(complaint);
  const database = url.pathname.length > 1 || url.searchParams.has('db');
  if (database) throw invalid(`${what} has a database; that of the master is db`);
  const { host, port, tls, username, password } = tcpTarget(url, given, DEFAULT_PORT);
  const has = username !== null || password !== null;
  const own = has ? { username, password, credentials: null } : login;
  return { host: host as string, port, tls, ...own };
}
