/** Takes a lock away from its holder, as the page asks for it. */

import type { Problem } from '../../base/http.js';
import { checkName } from '../../base/names.js';
import type { LockManager } from '../../manager/manager.js';
import { tokensOf, viewOf } from '../views/lock-views.js';
import type { Asked } from './asked.js';
import { holdersIdOf } from './rows.js';

/**
 * The header that says which lock to release. A form of another site cannot send a header, and a framework that has
 * parsed the body already does not matter.
 *
 * @internal
 */
const RELEASE_HEADER = 'holdfast-release';

interface Wanted {
  readonly name: string;
  readonly holdersId: string;
}

/** Why a request may not release anything; undefined if it may. @internal */
export function refusalOf(request: Asked): Problem | undefined {
  if (request.method !== 'POST') return problem(405, 'Not allowed', 'a lock is released by POST');
  if (!isSameOrigin(request)) {
    return problem(403, 'Refused', 'the request comes from a page of another site');
  }
  if (wantedOf(request) === undefined) {
    return problem(
      400,
      'Malformed',
      `the header ${RELEASE_HEADER} names no lock and the id of its holders`,
    );
  }
  return undefined;
}

/** Releases the lock, unless others hold it than the person saw who agreed to it. @internal */
export async function release(locks: LockManager, request: Asked): Promise<Problem | null> {
  const { name, holdersId } = wantedOf(request) as Wanted;
  const view = await viewOf(locks, name);
  if (view.mode === null) return problem(409, 'It is free', 'the lock has no holder any more');
  if (holdersIdOf(view) !== holdersId) {
    return problem(409, 'Another holder', 'the lock has another holder by now: nothing was done');
  }
  // Only from those that were compared: another may get the lock before the server reads this.
  if (await locks.forceRelease(name, { token: tokensOf(view) })) return null;
  return problem(409, 'Another holder', 'the lock has changed hands meanwhile: nothing was done');
}

export function problem(status: number, title: string, detail: string): Problem {
  return { status, title, detail };
}

/** Browsers say where a request comes from: by the first header where the page is trusted, else by the second. */
function isSameOrigin({ header, host }: Asked): boolean {
  const site = header('sec-fetch-site');
  if (site !== undefined) return site === 'same-origin';
  const origin = header('origin');
  return origin === undefined || (URL.canParse(origin) && new URL(origin).host === host);
}

function wantedOf({ header }: Asked): Wanted | undefined {
  try {
    const { name, holdersId } = JSON.parse(decodeURIComponent(String(header(RELEASE_HEADER))));
    checkName(name);
    return typeof holdersId === 'string' ? { name, holdersId } : undefined;
  } catch {
    return undefined;
  }
}
