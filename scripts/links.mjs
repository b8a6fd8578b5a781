// The links of a page that leaves the repository: those to its files lead to the place where it is hosted.

/** A link or picture of Markdown: whether it is a picture, its text, and its target. */
const LINK = /(!?)\[((?:[^[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)/g;

/**
 * The text of a page with links that work where it is read.
 *
 * `home`: the address of the repository, such as `https://github.com/owner/name`; without one a link to what does not come
 * along becomes its text. `ref`: the tag or branch of the links. `folder`: where the page lies, such as `docs/`. `comes`:
 * whether a file of the repository comes along with the page.
 */
export function portable(text, { home, ref, folder = '', comes }) {
  const address = (picture, path) => `${home}/${picture ? 'raw' : 'blob'}/${ref}/${path}`;
  return text.replaceAll(LINK, (_link, picture, words, target) => {
    const inner = portable(words, { home, ref, folder, comes });
    if (/^(?:[a-z]+:|#)/.test(target)) return `${picture}[${inner}](${target})`;
    const path = new URL(folder + target, 'file:///').href.slice('file:///'.length);
    if (home !== undefined) return `${picture}[${inner}](${address(picture, path)})`;
    if (comes(path.split('#')[0])) return `${picture}[${inner}](${target})`;
    return picture ? '' : inner;
  });
}
