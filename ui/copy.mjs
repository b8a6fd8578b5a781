// Copies texts.

/** How long a button says that it has copied, in ms. */
const SAID_MS = 1_500;

/** Lets a button copy what `textOf` returns, and say so. */
export function copies(button, textOf) {
  button.addEventListener('click', async (event) => {
    event.stopPropagation();
    const before = button.dataset.says ?? button.textContent;
    button.dataset.says = before;
    button.textContent = (await copy(textOf(), button)) ? 'Copied' : 'Not copied';
    button.removeAttribute('aria-label');
    setTimeout(() => {
      button.textContent = before;
    }, SAID_MS);
  });
}

async function copy(text, beside) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text, beside);
  }
}

/** Browsers have a clipboard only for secure pages; others copy what is selected. */
function copyBySelection(text, beside) {
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'unseen';
  // Within the dialog: what is outside of it cannot be selected.
  beside.after(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  beside.focus();
  return done;
}
