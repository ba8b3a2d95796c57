// What stands below a view's settings: reset, and its figure and its numbers to take home.

import { address } from './data.js';
import { button, el } from './elements.js';
import { portrait, save } from './export.js';
import { filmButton } from './filmed.js';
import { asText } from './memory.js';
import { printButton } from './print.js';
import { spoken } from './settings.js';
import { t } from './words.js';

async function shoot(self) {
  const told = self.value.controls
    .filter((c) => c.label)
    .map((c) => `${t(c.label)}: ${spoken(c, self.settings[c.name], self.value)}`);
  const title = [t(self.view.title), self.value.checkpoint].filter(Boolean).join(' · ');
  const said = [self.view.caption?.(self), ...told, 'vitviz'].filter(Boolean);
  save(await portrait(self, title, said), `vitviz-${self.name}.png`);
}

/** Buttons and links; `reset` is what the first of them does. */
export function closing(self, reset) {
  const settable = self.value.controls.length > 0 && !self.value.second;
  const taken = (name) => (event) =>
    (event.currentTarget.href = address(self.path(name, asText(self.settings))));
  const file = (text, name, kind) =>
    el('a', { text, download: true, href: '#', onclick: taken(name), ...kind });
  return [
    settable && button(t('Reset'), reset, { class: 'vv-reset' }),
    ...(self.value.files || []).map(([name, label]) =>
      file(t(label), name, { class: 'vv-take', 'data-name': name }),
    ),
    button(t('Figure (PNG)'), () => shoot(self), { class: 'vv-png' }),
    printButton(self),
    filmButton(self),
    file(t('Numbers (.npz)'), 'numbers.npz', { class: 'vv-npz' }),
  ].filter(Boolean);
}
