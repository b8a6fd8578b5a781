/** What a page must be for everybody, checked inside the browser: each finding is a sentence. */

import type { Page } from 'playwright-core';

/** The findings of the page as it is shown now; of an open dialog alone, if there is one. */
export function findingsOf(page: Page): Promise<string[]> {
  return page.evaluate(check);
}

function check(): string[] {
  const findings: string[] = [];
  const dialogs = Array.from(document.querySelectorAll<HTMLElement>('dialog[open]'));
  const root = dialogs.at(-1) ?? document.body;
  const all = Array.from(root.querySelectorAll<HTMLElement>('*')).filter(isShown);
  const name = (each: Element) =>
    `${each.localName}${each.id === '' ? '' : `#${each.id}`}.${each.getAttribute('class') ?? ''} "${(each.textContent ?? '').trim().slice(0, 40)}"`;

  // Everything fits into the width.
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 0) findings.push(`the page is ${wide} px wider than the window`);
  for (const each of all) {
    const box = each.getBoundingClientRect();
    const beyond = box.right > innerWidth + 1 && box.left < innerWidth;
    if (beyond && each.closest('svg, #kinds') === null)
      findings.push(`beyond the right edge: ${name(each)}`);
  }

  // Texts are readable, and none is cut that can be read nowhere else.
  for (const each of all) {
    const own = Array.from(each.childNodes).some(
      (node) => node.nodeType === 3 && node.nodeValue?.trim(),
    );
    if (!own || each.closest('.unseen, .skip, option') !== null) continue;
    const ratio = contrastOf(each);
    if (ratio < 4.5) findings.push(`contrast ${ratio.toFixed(2)}: ${name(each)}`);
    const hides = getComputedStyle(each).overflowX !== 'visible';
    const cut = hides && each.scrollWidth > each.clientWidth + 1;
    const elsewhere = each.closest('[title]:not([title=""]), .hot, #latest') !== null;
    if (cut && !elsewhere) findings.push(`cut: ${name(each)}`);
  }

  // Controls have names, and are large enough to be hit.
  for (const each of all.filter((one) => one.matches('button, input, select, a[href], summary'))) {
    const labels =
      each instanceof HTMLInputElement || each instanceof HTMLSelectElement ? each.labels : null;
    const said =
      each.getAttribute('aria-label') ??
      (labels?.length ? labels[0]?.textContent : each.textContent);
    if (!said?.trim()) findings.push(`without a name: ${name(each)}`);
    // People who speak to their computer say what they see.
    const label = each.getAttribute('aria-label');
    if (label !== null && !plain(label).includes(plain(each.textContent ?? '')))
      findings.push(`its name "${label}" lacks what is seen: ${name(each)}`);
    const box = each.getBoundingClientRect();
    const target = each.matches('input[type=checkbox]')
      ? each.closest('label')?.getBoundingClientRect()
      : box;
    if ((target?.height ?? 0) < 24 && each.closest('.skip') === null) {
      findings.push(`lower than 24 px: ${name(each)}`);
    }
  }

  // Structure.
  const ids = Array.from(document.querySelectorAll('[id]')).map(({ id }) => id);
  for (const id of new Set(ids)) {
    if (ids.filter((other) => other === id).length > 1)
      findings.push(`two elements with the id ${id}`);
  }
  for (const attribute of ['aria-labelledby', 'aria-describedby', 'for']) {
    for (const each of Array.from(document.querySelectorAll(`[${attribute}]`))) {
      const id = each.getAttribute(attribute) ?? '';
      if (!ids.includes(id)) findings.push(`${attribute} names nothing: ${name(each)}`);
    }
  }
  for (const list of Array.from(root.querySelectorAll('ol, ul'))) {
    if (Array.from(list.children).some(({ localName }) => localName !== 'li'))
      findings.push(`no item: ${name(list)}`);
  }
  for (const dl of Array.from(root.querySelectorAll('dl > div'))) {
    if (dl.querySelector('dt') === null || dl.querySelector('dd') === null)
      findings.push(`no pair: ${name(dl)}`);
  }
  for (const each of Array.from(root.querySelectorAll('[role=row]'))) {
    if (each.querySelector('[role=rowheader], [role=columnheader]') === null)
      findings.push(`no head: ${name(each)}`);
  }
  const levels = all
    .filter((one) => /^h[1-6]$/.test(one.localName))
    .map((one) => Number(one.localName[1]));
  levels.forEach((level, i) => {
    if (i > 0 && level > (levels[i - 1] ?? 0) + 1)
      findings.push(`a heading of level ${level} after ${levels[i - 1]}`);
  });

  // Nothing lies on top of a row's other cell.
  for (const row of Array.from(root.querySelectorAll('#rows tr[data-name]:not(.group)'))) {
    const ranges = Array.from(row.children).map((cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      const [text, box] = [range.getBoundingClientRect(), cell.getBoundingClientRect()];
      return {
        cell,
        left: Math.max(text.left, box.left),
        right: Math.min(text.right, box.right),
        top: text.top,
        bottom: text.bottom,
      };
    });
    for (const [i, a] of ranges.entries()) {
      for (const b of ranges.slice(i + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 1) findings.push(`${name(a.cell)} lies on ${name(b.cell)}`);
      }
    }
  }
  return [...new Set(findings)];

  function plain(text: string): string {
    return text.toLowerCase().replace(/\s+/g, '');
  }

  function isShown(each: HTMLElement): boolean {
    const box = each.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && getComputedStyle(each).visibility === 'visible';
  }

  /** The contrast of a text to what is behind it, as WCAG 2 computes it. */
  function contrastOf(each: Element): number {
    const [a = 0, b = 0] = [luminance([getComputedStyle(each).color]), luminance(behind(each))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }

  /** The colours below a text, the lowest first. */
  function behind(each: Element): string[] {
    const colours: string[] = [];
    for (let at: Element | null = each; at !== null; at = at.parentElement) {
      colours.unshift(getComputedStyle(at).backgroundColor);
    }
    const scheme = matchMedia('(prefers-color-scheme: dark)').matches ? 'black' : 'white';
    return [scheme, ...colours];
  }

  function luminance(colours: readonly string[]): number {
    const canvas = document
      .createElement('canvas')
      .getContext('2d', { willReadFrequently: true }) as CanvasRenderingContext2D;
    for (const colour of colours) {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
    }
    const [red = 0, green = 0, blue = 0] = Array.from(
      canvas.getImageData(0, 0, 1, 1).data,
      (byte) => {
        const part = byte / 255;
        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      },
    );
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }
}
