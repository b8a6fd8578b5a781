/** How the command line and the page say who holds a lock, and for how long. */

import { printable } from '../../base/printable.js';
import { human } from '../../base/time.js';

/** The number of digits at the end of a client id that tell it from others: an id begins with a time. */
export const CLIENT_DIGITS = 8;

/** The short name of a holder or waiter: its label, or the end of its client id. */
export function shortName(label: string | null, clientId: string): string {
  // Anybody who may write to the server may have written it.
  return printable(label ?? clientId.slice(-CLIENT_DIGITS));
}

/** How long a lease still lasts, in ms; `null` if it never ends. */
export function restOf(lease: number | null): string {
  return lease === null ? 'no end' : human(lease);
}

/** For how long a holder has had the lock, at most or at least. `began`: what `since` is, as the observer tells it. */
export function heldFor(
  { since, began }: { readonly since: number; readonly began: 'at' | 'or earlier' | 'or later' },
  now: number,
): string {
  const sign = { at: '', 'or later': '≤ ', 'or earlier': '≥ ' }[began];
  return sign + human(Math.max(0, now - since));
}
