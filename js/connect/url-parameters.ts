/** The parameters that services and other clients put into the URLs of servers. */

import { argumentError } from '../base/errors.js';

/** The options that the parameters of a URL stand for. @internal */
export interface Parameters {
  /** Whether the server speaks TLS; `undefined` if they do not say. */
  readonly tls: boolean | undefined;
  /** The database; `undefined` if they do not say. */
  readonly db: string | undefined;
}

/** The values of a switch that is on, and of one that is off. */
const ON = new Set(['true', '1', 'yes', 'on', '']);
const OFF = new Set(['false', '0', 'no', 'off']);

const NOTHING = 'leave it out, since holdfast has nothing like it, or use its options';
const TLS_NAME = 'use the option tls.servername';
const CERT = 'use the option tls.cert';
const USER = 'put it before the host (redis://user:password@host), or use the option username';
const PASSWORD = 'put it before the host (redis://:password@host), or use the option password';
const NO_CHECK =
  'to accept every certificate pass { tls: { rejectUnauthorized: false } } as an option: the URL alone does not turn the check off';
const TIMEOUTS = 'use the options connectTimeout and commandTimeout';
const CLUSTER = "use the target { cluster: ['redis://host:6379'] }";
const SENTINELS =
  "use the target { sentinels: ['redis://host:26379'], master: 'name of the primary' }";
const CA = 'use the option tls.ca';
const KEY = 'use the option tls.key';

/** The replacements for known parameters, by their names in lower case and without `_` and `-`. */
const INSTEAD: ReadonlyMap<string, string> = new Map(
  Object.entries({
    addr: CLUSTER,
    auth: PASSWORD,
    cacert: CA,
    cafile: CA,
    clientname: 'use the option clientName',
    cluster: CLUSTER,
    commandtimeout: TIMEOUTS,
    connectiontimeout: TIMEOUTS,
    connecttimeout: TIMEOUTS,
    dialtimeout: TIMEOUTS,
    insecure: NO_CHECK,
    keyprefix: 'use the option prefix',
    mastername: SENTINELS,
    name: 'use the option clientName',
    node: CLUSTER,
    password: PASSWORD,
    prefix: 'use the option prefix',
    readtimeout: TIMEOUTS,
    readwritetimeout: TIMEOUTS,
    rediscluster: CLUSTER,
    redissentinel: SENTINELS,
    rejectunauthorized: NO_CHECK,
    sentinel: SENTINELS,
    sentinelmasterid: SENTINELS,
    sentinelservicename: SENTINELS,
    servername: TLS_NAME,
    servicename: SENTINELS,
    skipverify: NO_CHECK,
    sni: TLS_NAME,
    socketconnecttimeout: TIMEOUTS,
    sockettimeout: TIMEOUTS,
    sslcacerts: CA,
    sslcadata: CA,
    sslcapath: CA,
    sslcert: CERT,
    sslcertfile: CERT,
    sslcheckhostname: TLS_NAME,
    sslkey: KEY,
    sslkeyfile: KEY,
    sslrootcert: CA,
    sslverify: NO_CHECK,
    timeout: TIMEOUTS,
    tlsca: CA,
    tlscafile: CA,
    tlscert: CERT,
    tlsinsecure: NO_CHECK,
    tlskey: KEY,
    tlsverify: NO_CHECK,
    user: USER,
    username: USER,
    verifypeer: NO_CHECK,
    writetimeout: TIMEOUTS,
  }),
);

/** The values of `sslmode` that are TLS. The server's certificate is always checked. */
const TLS_MODES = new Set(['require', 'verify-ca', 'verify-full']);

/**
 * Reads the parameters of a server's URL: understands those that have a meaning here, and refuses the others by name,
 * unless they may be the rest of a password with a `?` in it, since a `@` follows.
 *
 * @internal
 */
export function readParameters(url: URL): Parameters {
  let tls: boolean | undefined;
  let db: string | undefined;
  const refusal = (name: string, instead?: string) => refusalOf(url, name, instead);
  const isOn = (name: string, value: string) => {
    const word = value.toLowerCase();
    if (!ON.has(word) && !OFF.has(word)) throw refusal(name, 'it is true or false');
    return ON.has(word);
  };
  for (const [name, value] of url.searchParams) {
    switch (plain(name)) {
      case 'tls':
      case 'ssl':
        tls = isOn(name, value);
        break;
      case 'sslmode':
        tls = TLS_MODES.has(value);
        if (!tls && value !== 'disable')
          throw refusal(name, 'it is disable, require or verify-full');
        break;
      case 'sslcertreqs':
        // The server's certificate is checked by default.
        if (!/^(cert_)?required$/i.test(value)) throw refusal(name, NO_CHECK);
        break;
      case 'family':
        // `connect` tries all addresses of the host, so each value changes nothing.
        if (!/^[046]$/.test(value)) throw refusal(name, 'it is 0, 4 or 6');
        break;
      case 'protocol':
        // The best that the server has is used, and the same works with both.
        if (!/^(resp)?[23]$/i.test(value)) throw refusal(name, 'it is 2 or 3');
        break;
      case 'allowusernameinuri':
        // A user name before the host is always taken.
        if (!isOn(name, value)) throw refusal(name, 'leave the user name out');
        break;
      case 'database':
      case 'db':
        db = value;
        break;
      default:
        throw refusal(name);
    }
  }
  return { tls, db };
}

/** A name in lower case and without `_` and `-`. */
function plain(name: string): string {
  return name.toLowerCase().replaceAll(/[_-]/g, '');
}

function refusalOf(url: URL, name: string, instead = INSTEAD.get(plain(name))): Error {
  // A password stands before a `@`, and no program calls a parameter like many of them.
  const isName = !url.search.includes('@') && /^[a-z][\w-]{0,39}$/i.test(name);
  return argumentError(
    'ERR_INVALID_ARG_VALUE',
    isName || instead !== undefined
      ? `the URL of a server has the parameter ${name}, which cannot be used like that: ${instead ?? NOTHING}`
      : 'the URL of a server has a ?parameter that holdfast does not know; use the options, or write %3F if the ? belongs to the password',
  );
}
