/** A table of Markdown, as lines: `heads` above the columns, `rows` of texts. */
export function markdown(heads, rows) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  return [line(heads), `|${'---|'.repeat(heads.length)}`, ...rows.map(line)];
}

/** A number as the tables show it, with commas between thousands; `-` of nothing. */
export function figure(number, digits = 0) {
  if (!Number.isFinite(number)) return '-';
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return number.toLocaleString('en', options);
}
