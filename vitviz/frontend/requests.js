// Requests of a view: the items and images that it needs under its current settings.

import { array } from './data.js';
import { paintedOver } from './removed_patches.js';

/** Names of all items and images that the view draws from. */
function parts(self) {
  const pictures = self.view.pictures?.(self) || [];
  const painted = pictures.includes('upload') && !pictures.includes('input') && paintedOver(self);
  return [
    ...(painted ? [...pictures, 'input'] : pictures).map((name) => ['picture', name]),
    ...(self.view.items?.(self) || []).map((name) => ['item', name]),
  ];
}

/** Everything that the figure depends on, as one string; empty before there is an image. */
export function wanted(self) {
  if (!self.key) return '';
  const asked = parts(self).map(([kind, name]) =>
    kind === 'item' ? self.item(name).slice(self.key.length) : name,
  );
  return `${self.key}/${asked.join('|')}`;
}

/** The addresses, after the key, of the items that the view was drawn from. */
export function addresses(self) {
  const items = self.loaded && !self.view.load ? parts(self).filter(([kind]) => kind === 'item') : [];
  return items.map(([, name]) => self.item(name).slice(self.key.length + 1));
}

/** Fetches everything named by `wanted`: item or image -> value. */
export async function load(self, signal) {
  if (self.view.load) return self.view.load(self, signal);
  const asked = parts(self);
  const found = await Promise.all(
    asked.map(([kind, name]) =>
      kind === 'item' ? array(self.item(name), signal) : self.picture(name, signal),
    ),
  );
  return Object.fromEntries(asked.map(([, name], i) => [name, found[i]]));
}
