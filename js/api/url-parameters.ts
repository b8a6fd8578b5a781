/** The parameters that services and other clients put into the URLs of servers. */

import { argumentError } from './errors.js';

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

const NOTHING = 'leave it out, since holdfast has nothing like it';
const NO_CHECK =
  'to accept every certificate pass { tls: { rejectUnauthorized: false } } as an option: the URL alone does not turn the check off';
const TIMEOUTS = 'use the options connectTimeout and commandTimeout';

/** The known parameters that have an option instead, or nothing, in lower case and without `_` and `-`. */
const INSTEAD: Readonly<Record<string, string>> = {
  clientname: 'use the option clientName',
  connectiontimeout: TIMEOUTS,
  connecttimeout: TIMEOUTS,
  commandtimeout: TIMEOUTS,
  enablereadycheck: NOTHING,
  insecure: NO_CHECK,
  keyprefix: 'use the option prefix',
  lazyconnect: NOTHING,
  maxconnections: NOTHING,
  maxretriesperrequest: NOTHING,
  name: 'use the option clientName',
  password: 'put it before the host (redis://:password@host), or use the option password',
  poolsize: NOTHING,
  readtimeout: TIMEOUTS,
  rejectunauthorized: NO_CHECK,
  retryontimeout: NOTHING,
  servername: 'use the option tls.servername',
  skipverify: NO_CHECK,
  sockettimeout: TIMEOUTS,
  socketconnecttimeout: TIMEOUTS,
  sslcacerts: 'use the option tls.ca',
  sslcertfile: 'use the option tls.cert',
  sslcheckhostname: 'use the option tls.servername',
  sslkeyfile: 'use the option tls.key',
  timeout: TIMEOUTS,
  tlsinsecure: NO_CHECK,
  user: 'put it before the host (redis://user:password@host), or use the option username',
  username: 'put it before the host (redis://user:password@host), or use the option username',
};

/**
 * Reads the parameters of a server's URL: understands those that have a meaning here, and refuses the others by name,
 * unless the name is unknown, since it may be the rest of a password with a `?` in it.
 *
 * @internal
 */
export function readParameters(url: URL): Parameters {
  let tls: boolean | undefined;
  let db: string | undefined;
  for (const [name, value] of url.searchParams) {
    switch (name.toLowerCase().replaceAll(/[_-]/g, '')) {
      case 'tls':
      case 'ssl':
        tls = isOn(name, value);
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
        if (!/^[23]$/.test(value)) throw refusal(name, 'it is 2 or 3');
        break;
      case 'db':
        db = value;
        break;
      default:
        throw refusal(name);
    }
  }
  return { tls, db };
}

function isOn(name: string, value: string): boolean {
  const word = value.toLowerCase();
  if (!ON.has(word) && !OFF.has(word)) throw refusal(name, 'it is true or false');
  return ON.has(word);
}

function refusal(name: string, instead?: string): Error {
  const advice = instead ?? INSTEAD[name.toLowerCase().replaceAll(/[_-]/g, '')];
  return argumentError(
    'ERR_INVALID_ARG_VALUE',
    advice === undefined
      ? 'the URL of a server has a ?parameter that holdfast does not know; use the options, or write %3F if the ? belongs to the password'
      : `the URL of a server has the parameter ${name}, which cannot be used like that: ${advice}`,
  );
}
