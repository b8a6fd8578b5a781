/** Checks the arguments of `connect`, and makes of them the options for the core. */

import type { ErrorContext } from '../lock/outcome.js';
import { native } from '../native/addon.js';
import type { ChannelOptions } from '../native/channel.js';
import { AskedLogins } from './asked-logins.js';
import { channelOptions } from './channel-options.js';
import { checkTarget } from './check-target.js';
import { isClient, readClient } from './clients/read-clients.js';
import { withOptions } from './endpoints.js';
import { type CheckedOptions, type ConnectOptions, checkConnectOptions } from './options.js';

/** The target and the options, checked. @internal */
export interface Prepared {
  readonly context: ErrorContext;
  readonly checked: CheckedOptions;
  /** The options for the core. */
  readonly options: ChannelOptions;
  /** The logins that it asks for. */
  readonly logins: AskedLogins;
}

/** Checks the arguments of `connect`. @internal */
export function prepare(target: unknown, options: ConnectOptions | undefined): Prepared {
  const client = isClient(target) ? readClient(target, 'the client') : undefined;
  const named = checkTarget(client?.target ?? target);
  const own = checkConnectOptions(options);
  const checked = {
    ...client?.options,
    ...own,
    prefix: (client?.options.prefix ?? '') + own.prefix,
  };
  const where = withOptions(named, checked);
  const context = {
    client: native.Bridge.newClient(),
    label: checked.label,
    server: where.label,
    sharded: where.cluster !== null,
    servers: (where.quorum ?? []).map(({ label }) => label),
  };
  const logins = new AskedLogins();
  return {
    context,
    checked,
    options: channelOptions(context.client, where, checked, logins),
    logins,
  };
}
