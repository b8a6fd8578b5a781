// One lock, at the side: its holders, its wait queue, which process waits for which, and its history.

import { copies } from './copy.mjs';
import { element, leaseOf, nameOf, plural, sinceOf, untilOf, write } from './format.mjs';
import { drawHistory } from './happened.mjs';
import { countsPermits, describe, heldSince, kindOf, waitedSince } from './kinds.mjs';
import { drawPeople } from './list.mjs';
import { Release } from './release.mjs';
import { human, printable } from './shared.mjs';
import { drawSpark } from './spark.mjs';

/** So many holders and waiters are listed. */
const PEOPLE_MAX = 200;
/** So many locks are named that a waiter holds as well. */
const HELD_MAX = 3;
const LINK = '#lock=';

const at = (selector) => document.querySelector(selector);

export class Details {
  #name = null;
  #locks;
  #series;
  #question = new Release(at('#details-note'));
  #drawn = '';
  /** The look and the lock whose chains are drawn. */
  #chained = {};
  /** Whether this page may release locks. */
  release = false;

  constructor(locks, series) {
    this.#locks = locks;
    this.#series = series;
    at('#close').addEventListener('click', () => at('#details').close());
    at('#details').addEventListener('close', () => this.#closed());
    at('#details').addEventListener('click', (event) => {
      // The click is on what is behind the dialog.
      if (event.target === at('#details')) at('#details').close();
    });
    at('#release').addEventListener('click', () => {
      const lock = locks.get(this.#name);
      if (lock !== undefined) this.#question.ask(lock);
    });
    copies(at('#copy-link'), () => location.href);
    copies(at('#copy-name'), () => this.#name);
    addEventListener('hashchange', () => this.follow());
  }

  /** Opens the lock that the address names, if it names one. */
  follow() {
    const name = nameIn(location.hash);
    if (name !== null) this.open(name);
    else if (at('#details').open) at('#details').close();
  }

  open(name) {
    if (name === undefined) return;
    this.#name = name;
    this.#drawn = '';
    history.replaceState(null, '', LINK + encodeURIComponent(name));
    at('#details-note').textContent = '';
    this.draw();
    if (!at('#details').open) at('#details').showModal();
    at('#details').scrollTop = 0;
    at('#close').focus();
  }

  #closed() {
    this.#name = null;
    if (nameIn(location.hash) !== null) {
      history.replaceState(null, '', location.pathname + location.search);
    }
  }

  /** Brings the dialog up to date, if it is open. */
  draw() {
    if (this.#name === null) return;
    const now = this.#locks.now();
    const lock = this.#locks.get(this.#name);
    write(at('#details-title'), `Lock “${printable(this.#name)}”`);
    write(at('#details-summary'), summary(lock));
    this.#drawHolders(lock, now);
    this.#drawWaiters(lock, now);
    drawVotes(lock?.votes ?? []);
    this.#drawTimes(lock, now);
    this.#drawChains(lock);
    const happened = this.#locks.history.of(this.#name);
    const state = `${this.#name} ${happened.length} ${happened.at(-1)?.at} ${this.#locks.history.gaps.length}`;
    if (state !== this.#drawn) drawHistory(at('#history'), this.#name, this.#locks.history);
    this.#drawn = state;
    const mayRelease = this.release && this.#locks.quorum === null;
    at('#release').hidden = !mayRelease || (lock?.holders ?? []).length === 0;
    write(at('#release'), lock !== undefined && kindOf(lock) === 'done' ? 'Forget…' : 'Release…');
  }

  #drawHolders(lock, now) {
    const holders = lock?.holders ?? [];
    const several = lock !== undefined && countsPermits(lock);
    drawPeople(at('#holders'), holders.slice(0, PEOPLE_MAX), (each) => ({
      who: nameOf(each),
      client: each.client,
      facts: [
        ...(several ? [['Permits', String(each.permits)]] : []),
        [each.state === 'done' ? 'Done since' : 'Held since', sinceOf(each, now)],
        each.state === 'done'
          ? ['Counts as done', untilOf(each)]
          : ['Lease ends in', leaseOf(each, now)],
        ['Fence', each.fence === null ? 'known to its holder alone' : String(each.fence)],
        ...(each.state === 'done' ? [['Result', each.result ? 'kept' : 'not kept']] : []),
      ],
    }));
    write(at('#holders-more'), moreThan(PEOPLE_MAX, holders.length));
  }

  #drawWaiters(lock, now) {
    const waiters = lock?.waiters ?? [];
    const several = lock !== undefined && countsPermits(lock);
    const { processes } = this.#locks;
    const title = lock?.kind === 'leader' ? 'Candidates' : 'Wait queue';
    write(at('#waiters-title'), waiters.length === 0 ? title : `${title} (${waiters.length})`);
    drawPeople(at('#waiters'), waiters.slice(0, PEOPLE_MAX), (each, i) => ({
      who: `${i + 1}. ${nameOf(each)}`,
      client: each.client,
      facts: [
        ['Waits for', human(now - each.since)],
        ['Wants it', each.mode],
        ...(several ? [['Permits', String(each.permits)]] : []),
        ...alsoHolds(processes.heldBy(each.client), lock),
      ],
    }));
    write(at('#waiters-more'), moreThan(PEOPLE_MAX, waiters.length));
  }

  #drawTimes(lock, now) {
    const held = lock === undefined ? Number.POSITIVE_INFINITY : heldSince(lock);
    const waited = lock === undefined ? Number.POSITIVE_INFINITY : waitedSince(lock);
    write(at('#hold-now'), Number.isFinite(held) ? human(now - held) : '–');
    write(at('#wait-now'), Number.isFinite(waited) ? human(now - waited) : '–');
    drawSpark(at('#hold-spark'), this.#series.holds(this.#name));
    drawSpark(at('#wait-spark'), this.#series.waits(this.#name));
  }

  /** The chains are the same until the next look. */
  #drawChains(lock) {
    const { processes } = this.#locks;
    if (this.#chained.processes === processes && this.#chained.name === this.#name) return;
    this.#chained = { processes, name: this.#name };
    const none = { chains: [], more: 0, cut: false };
    const { chains, more, cut } = lock === undefined ? none : processes.chainsFrom(lock);
    at('#chains-part').hidden = chains.length === 0;
    const texts = chains.map((chain) => chain.map(stepOf).join(''));
    if (more > 0 || cut)
      texts.push(`and ${cut ? 'at least ' : ''}${more.toLocaleString('en')} more`);
    const list = at('#chains');
    if (list.dataset.drawn === texts.join('\n')) return;
    list.dataset.drawn = texts.join('\n');
    list.replaceChildren(...texts.map((text) => element('li', text)));
  }
}

function stepOf({ lock, others, holder, circle }, i, chain) {
  const name = `“${printable(lock.name)}”`;
  if (i === 0) return `${name} is held by ${nameOf(holder)}`;
  const wants = `, which also waits for ${name}${others > 0 ? ` and ${others} more` : ''}`;
  if (chain[i - 1].holder.client === holder.client) return `${wants}, held by itself`;
  return `${wants}, held by ${nameOf(holder)}${circle ? ' again: a circle of processes' : ''}`;
}

/** What the process of a waiter holds besides, as facts of its card. */
function alsoHolds(held, lock) {
  const others = held.filter((each) => each !== lock);
  if (others.length === 0) return [];
  const named = others
    .slice(0, HELD_MAX)
    .map(({ name, waiters }) => `“${printable(name)}” (${waiters.length} waiting)`);
  const more = moreThan(HELD_MAX, others.length);
  return [['Its process holds', `${named.join(', ')}${more === '' ? '' : ` ${more}`}`]];
}

function moreThan(most, count) {
  return count > most ? `and ${(count - most).toLocaleString('en')} more` : '';
}

function drawVotes(votes) {
  at('#votes-part').hidden = votes.length === 0;
  const rows = votes.map(({ server, by, failure }) => {
    const row = document.createElement('tr');
    const said = failure === null ? (by ?? 'nobody') : `no answer: ${failure}`;
    const place = element('th', printable(server));
    place.scope = 'row';
    row.append(place, element('td', printable(said), by === null ? 'quiet' : ''));
    return row;
  });
  at('#votes tbody').replaceChildren(...rows);
  const most = votes.filter(({ by }) => by !== null).length;
  write(at('#votes-count'), `${most} of ${votes.length} servers name a holder.`);
}

function summary(lock) {
  if (lock === undefined) return 'It is held by nobody, and nobody waits for it.';
  const { kind, waiters, changes } = lock;
  const waiting =
    kind === 'leader' ? plural(waiters.length, 'candidate') : `${waiters.length} waiting`;
  const queue = waiters.length === 0 ? 'Nobody waits.' : `${waiting}.`;
  return `${describe(lock)} ${queue} New holders seen: ${changes}.`;
}

/** The lock that an address names; null if it names none. */
function nameIn(hash) {
  if (!hash.startsWith(LINK)) return null;
  try {
    return decodeURIComponent(hash.slice(LINK.length));
  } catch {
    return null;
  }
}
