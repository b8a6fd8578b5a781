/** Finds the value of a name that a file takes from another file of the tree. */

import { dirname, join } from 'node:path';
import { type Binding, bindingsOf, exportsOf, propertyOf, specifierOf } from './bindings.js';
import type { Parser } from './parser.js';
import { type Node, nameOf, type Outside, parse, type Source, type Value } from './source.js';
import { textOf } from './walk.js';

/** How often a file may hand on what it takes from another. */
const HOPS_MAX = 8;

const ENDINGS = ['', '.ts', '.js', '.mjs', '.cjs', '.mts', '.cts', '.tsx', '.jsx'];

/** The files of a tree by their imports. It reads a file that another one imports, and none beside those of the tree. */
export class Modules implements Outside {
  readonly #parser: Parser;
  readonly #files: ReadonlySet<string>;
  readonly #sources = new Map<string, Source | undefined>();

  constructor(parser: Parser, files: Iterable<string>) {
    this.#parser = parser;
    this.#files = new Set(files);
  }

  resolve(source: Source, node: Node): Value | undefined {
    return this.#valueOf(source, node, HOPS_MAX);
  }

  #valueOf(source: Source, given: Node, hops: number): Value | undefined {
    const node = source.resolve(given);
    const binding = bindingOf(source, node);
    if (binding !== undefined) return this.#exported(source, binding, hops);
    if (node.type !== 'MemberExpression') return undefined;
    const name = nameOf(node.property);
    const whole = bindingOf(source, source.resolve(node.object));
    if (whole === undefined || name === '') return undefined;
    if (whole.name === '*') return this.#exported(source, { ...whole, name }, hops);
    const outer = this.#exported(source, whole, hops);
    return outer && this.#property(outer, name, hops);
  }

  #exported(from: Source, { specifier, name }: Binding, hops: number): Value | undefined {
    const source = hops > 0 ? this.#sourceOf(from, specifier) : undefined;
    if (source === undefined) return undefined;
    const { values, others, all, whole } = exportsOf(source);
    const own = values.get(name);
    if (own !== undefined) return this.#follow(source, own, hops);
    const other = others.get(name);
    if (other !== undefined) return this.#exported(source, other, hops - 1);
    if (whole !== undefined) {
      const value = this.#follow(source, whole, hops);
      return name === '*' || name === 'default' ? value : this.#property(value, name, hops);
    }
    for (const each of all) {
      const value = this.#exported(source, { specifier: each, name }, hops - 1);
      if (value !== undefined) return value;
    }
    return undefined;
  }

  #follow(source: Source, node: Node, hops: number): Value {
    return this.#valueOf(source, node, hops - 1) ?? { source, node: source.resolve(node) };
  }

  #property({ source, node }: Value, name: string, hops: number): Value | undefined {
    const value = propertyOf(node, name);
    return value && this.#follow(source, value, hops);
  }

  imports(source: Source, other: Source): boolean {
    return this.#imports(source, other, new Set());
  }

  #imports(source: Source, other: Source, seen: Set<Source>): boolean {
    if (source.path === other.path) return true;
    if (seen.has(source)) return false;
    seen.add(source);
    const specifiers = new Set(source.nodes.flatMap((node) => specifierOf(node) ?? []));
    return [...specifiers].some((each) => {
      const next = this.#sourceOf(source, each);
      return next !== undefined && this.#imports(next, other, seen);
    });
  }

  #sourceOf(from: Source, specifier: string): Source | undefined {
    const path = this.#pathOf(from.path, specifier);
    if (path === undefined) return undefined;
    if (!this.#sources.has(path)) {
      // That it cannot be read is told when its own turn comes.
      const text = textOf(path, () => {});
      const source = text === undefined ? undefined : parse(this.#parser, path, text, this);
      this.#sources.set(path, source);
    }
    return this.#sources.get(path);
  }

  #pathOf(from: string, specifier: string): string | undefined {
    return this.#placesOf(from, specifier)
      .flatMap((place) => {
        const bare = place.replace(/\.[cm]?jsx?$/, '');
        return [place, bare, join(place, 'index')].flatMap((each) =>
          ENDINGS.map((ending) => each + ending),
        );
      })
      .find((path) => this.#files.has(path));
  }

  /** The places that a specifier may name: `@/` and `~/` stand for the folder of the sources, as by custom. */
  #placesOf(from: string, specifier: string): string[] {
    if (/^\.\.?(\/|$)/.test(specifier)) return [join(dirname(from), specifier)];
    const alias = /^[@~]\/(.+)$/.exec(specifier)?.[1];
    const places: string[] = [];
    for (let at = dirname(from); alias !== undefined; at = dirname(at)) {
      places.push(join(at, alias), join(at, 'src', alias));
      if (at === dirname(at)) break;
    }
    return places;
  }
}

/** The import by which a file has a value: of a name, or of a whole module by `require`. */
function bindingOf(source: Source, node: Node): Binding | undefined {
  if (node.type === 'Identifier') return bindingsOf(source).get(node.name);
  const specifier = node.type === 'CallExpression' ? specifierOf(node) : undefined;
  return specifier === undefined ? undefined : { specifier, name: '*' };
}
