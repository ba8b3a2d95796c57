// What a view asks the server for: the items and pictures that it draws from, under its present settings.

import { array } from './data.js';
import { paintedOver } from './removed_patches.js';

/** Names of all that is drawn from; two of them are pictures. */
function parts(self) {
  const pictures = self.view.pictures?.(self) || [];
  const painted = pictures.includes('upload') && !pictures.includes('input') && paintedOver(self);
  return [
    ...(painted ? [...pictures, 'input'] : pictures).map((name) => ['picture', name]),
    ...(self.view.items?.(self) || []).map((name) => ['item', name]),
  ];
}

/** All that the figure depends on, as one text; empty as long as there is no picture. */
export function wanted(self) {
  if (!self.key) return '';
  const asked = parts(self).map(([kind, name]) =>
    kind === 'item' ? self.item(name).slice(self.key.length) : name,
  );
  return `${self.key}/${asked.join('|')}`;
}

/** The items that it has been drawn from, by their addresses behind the key. */
export function addresses(self) {
  const items = self.loaded && !self.view.load ? parts(self).filter(([kind]) => kind === 'item') : [];
  return items.map(([, name]) => self.item(name).slice(self.key.length + 1));
}

/** Fetches what `wanted` names: item or image -> its value. */
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
