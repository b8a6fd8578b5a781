// What people have chosen, in the address of the page: it survives a reload, and a link to it shows the same.

const OWN = ['kind', 'search', 'waited', 'sort', 'groups', 'closed'];

/** What the address says, as lists of texts. */
export function choicesIn(search) {
  const given = new URLSearchParams(search);
  return Object.fromEntries(OWN.map((name) => [name, given.getAll(name)]));
}

/** Puts choices into the address, without a step of its own in the history. What is an empty list or text is left out. */
export function keepChoices(choices) {
  const given = new URLSearchParams(location.search);
  for (const name of OWN) {
    given.delete(name);
    for (const text of [choices[name]].flat()) if (text) given.append(name, text);
  }
  const search = String(given) === '' ? '' : `?${given}`;
  if (search === location.search) return;
  history.replaceState(null, '', location.pathname + search + location.hash);
}
