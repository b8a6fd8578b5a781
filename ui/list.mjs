// The holders or the waiters of one lock, as cards with their facts.

import { copies } from './copy.mjs';
import { element, shortOf, write } from './format.mjs';
import { printable } from './shared.mjs';

const COPY = 'Copy id';

/** Draws people as `{ who, client, facts }`. A card that stays is kept: a person may have the focus in it. */
export function drawPeople(list, people, told) {
  while (list.children.length > Math.max(1, people.length)) list.lastChild.remove();
  if (people.length === 0) {
    list.replaceChildren(element('li', 'none', 'quiet none'));
    return;
  }
  if (list.querySelector('.none') !== null) list.replaceChildren();
  people.forEach((each, i) => {
    const card = list.children[i] ?? list.appendChild(newCard());
    fill(card, told(each, i));
  });
}

function newCard() {
  const card = document.createElement('li');
  const head = element('div', '', 'person');
  const button = element('button', COPY, 'small');
  button.type = 'button';
  copies(button, () => card.dataset.client);
  head.append(element('strong'), element('code'), button);
  card.append(head, document.createElement('dl'));
  return card;
}

function fill(card, { who, client, facts }) {
  const [head, list] = card.children;
  const [name, id, button] = head.children;
  card.dataset.client = client;
  write(name, who);
  write(id, shortOf(printable(client)));
  id.title = printable(client);
  button.hidden = client === '';
  // The name contains what is seen; that is something else for a moment after a click.
  if (button.textContent === COPY) button.setAttribute('aria-label', `${COPY} of ${who}`);
  else button.removeAttribute('aria-label');
  while (list.children.length > facts.length) list.lastChild.remove();
  facts.forEach(([key, value], i) => {
    if (list.children[i] === undefined) {
      const pair = document.createElement('div');
      pair.append(document.createElement('dt'), document.createElement('dd'));
      list.append(pair);
    }
    const [term, said] = list.children[i].children;
    write(term, key);
    write(said, value);
  });
}
