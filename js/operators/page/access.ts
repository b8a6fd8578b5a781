/** Access to the page that `holdfast ui` serves: for a browser that has the token, under a name of this machine. */

import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import { send } from '../../base/answer.js';
import { refusal, targetOf } from '../../base/http.js';
import { problem } from './release.js';

/** The settings of the access. @internal */
interface AccessSettings {
  readonly token: string;
  /** Names by which the page may be reached, besides localhost and addresses. */
  readonly hosts: readonly string[];
  /** Cookies do not tell ports apart, so the name of this one does. */
  readonly port: number;
}

/** Lets requests pass, or answers them. @internal */
export class Access {
  readonly #token: string;
  readonly #session: string;
  readonly #cookie: string;
  readonly #hosts: ReadonlySet<string>;

  constructor({ token, hosts, port }: AccessSettings) {
    this.#token = token;
    this.#session = createHmac('sha256', token).update('session').digest('base64url');
    this.#cookie = `holdfast-ui-${port}`;
    this.#hosts = new Set(['localhost', ...hosts.map((host) => host.toLowerCase())]);
  }

  /** Whether the request may pass; otherwise it has been answered. */
  pass(request: IncomingMessage, response: ServerResponse): boolean {
    if (!this.#isOurs(request.headers.host)) {
      const detail = 'the page does not have this name: allow it with --allow-host';
      send(response, refusal(problem(403, 'Unknown name', detail)));
      return false;
    }
    const target = targetOf(request.url);
    if (target === undefined) {
      send(response, refusal(problem(400, 'Malformed', 'the request asks for no path')));
      return false;
    }
    const token = target.query.get('token');
    if (token !== null && equal(token, this.#token)) {
      this.#welcome(response, target.path);
      return false;
    }
    if (equal(this.#sessionIn(request), this.#session)) return true;
    const detail = 'open the address with the token, which holdfast ui has printed';
    const headers = { 'Referrer-Policy': 'no-referrer' };
    send(response, refusal(problem(401, 'No token', detail), headers));
    return false;
  }

  /**
   * Whether the host is one of this page. A name of an attacker that points to this machine (DNS rebinding) is none; an
   * address cannot be made to point elsewhere.
   */
  #isOurs(host = ''): boolean {
    if (!URL.canParse(`http://${host}`)) return false;
    const { hostname } = new URL(`http://${host}`);
    return this.#hosts.has(hostname) || isIP(hostname.replace(/^\[|\]$/g, '')) !== 0;
  }

  /** Gives the browser a cookie in place of the token, which leaves its address line. */
  #welcome(response: ServerResponse, path: string): void {
    const cookie = `${this.#cookie}=${this.#session}; Path=/; HttpOnly; SameSite=Strict`;
    // Browsers take a path that begins with two slashes, either way they lean, for another host.
    const location = `/${path.replace(/^[/\\]+/, '')}`;
    const headers = { 'Cache-Control': 'no-store', 'Referrer-Policy': 'no-referrer' };
    send(response, {
      status: 303,
      headers: { ...headers, 'Set-Cookie': cookie, Location: location },
    });
  }

  #sessionIn({ headers }: IncomingMessage): string {
    const pairs = (headers.cookie ?? '').split(/; */).map((pair) => pair.split('='));
    return pairs.find(([name]) => name === this.#cookie)?.[1] ?? '';
  }
}

/** Compares in a time that does not depend on where the two differ. */
function equal(a: string, b: string): boolean {
  const [left, right] = [a, b].map((text) => createHash('sha256').update(text).digest());
  return timingSafeEqual(left as Buffer, right as Buffer);
}
