// Attribution: a map of the patches that raise or lower a class's logit, the contributions beside the map,
// and their sum.

import { unpacked } from '../../frontend/data.js';
import { button, div, el, span, stack } from '../../frontend/elements.js';
import { send } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { map } from '../../frontend/map.js';
import { number } from '../../frontend/numbers.js';
import { outline } from '../../frontend/pointer.js';
import { ablated } from '../../frontend/removed_patches.js';
import { differs, reach, still } from '../../frontend/shared_scale.js';
import { account, drawAccount, drawGraph } from './account.js';
import { hasGrid } from './change.js';
import { drawEffects, drawSmallest, effects, smallest } from './effects.js';
import { asked, chosenHeads, chosenOf, className, listed, shown, sumName, targets } from './lines.js';
import { bestOf, drawForming, forming, ownAnswers, worth } from './logit_lens.js';
import { chooseHead, clear, drags, picker, showPickers, takeAway, toggle } from './selection.js';
import { drawLegend, legend, likeliest, likeliestMap, markEntry } from './sentences.js';
import { tell } from './summary.js';
import { drawWriters, writers, written, writtenMap } from './writers.js';

const SUMS = ['map', 'heads', 'mlps', 'biases', 'lines', 'explained', 'sources', 'share', 'direct'];

/**
 * Puts the texts of the map around the map, or beside it where the map has the height of the window. There
 * they are below the grid of heads, if there is one, because visitors first try to ablate a head.
 */
function arrange(self) {
  const { question, balanced, either, drawn, framed, head, tail, made } = self.ui;
  const style = () => getComputedStyle(self.below).getPropertyValue('--vv-apart').trim();
  const apart = self.read('apart', style) === '1';
  const place = !apart ? 'around' : hasGrid(self) ? 'grid' : 'beside';
  if (self.ui.place === place) return;
  self.ui.place = place;
  head.hidden = tail.hidden = !apart;
  const scale = [drawn.title, drawn.bar.node];
  if (apart) {
    framed.replaceChildren(drawn.node);
    head.replaceChildren(question, ...(place === 'beside' ? scale : []));
    tail.replaceChildren(...(place === 'beside' ? [] : scale), balanced, either);
    return place === 'grid' ? made.changed.node.after(tail) : self.below.append(tail);
  }
  drawn.node.prepend(drawn.title);
  drawn.plot.after(drawn.bar.node);
  framed.replaceChildren(question, drawn.node, balanced, either);
}

/** What a value of the map means, in the tooltip. */
function meaning(self, value) {
  if (self.settings.method !== 'ledger' && shown(self) !== 'writers')
    return [t('relevance, in the method’s own units')];
  if (differs(self)) return [t('change of its contribution, in logits')];
  if (!value) return [];
  if (self.value.head_type === 'value') return [value > 0 ? t('raises the value') : t('lowers the value')];
  return [value > 0 ? t('raises the logit') : t('lowers the logit')];
}

export default () => ({
  title: 'Attribution',
  side: true,
  walled: true,
  pictures: () => ['upload'],
  items: (self) => [
    ...SUMS,
    'classes',
    'labels',
    ...(['effects', 'smallest', 'sentences'].includes(shown(self)) ? [] : ['chart']), // or stepwise
    ...(self.value.changed ? ['change'] : []),
    ...(forming(self) ? ['own', 'best'] : []),
    ...(likeliest(self) ? ['likeliest', 'legend'] : []),
    ...written(self),
  ],
  idle: (self) => (differs(self) ? ['show', 'depth', 'paths', 'patchwise', 'least'] : []),
  caption: (self) => `${className(self, targets(self).of)}: ${self.ui.balance.textContent}`,
  reset: (self) => self.ui.marks?.forEach((mark) => mark.hide()),

  build(self) {
    const [of, rather] = [picker(self, t('Why')), picker(self, t('rather than'))];
    const unknown = el('span', { class: 'vv-unknown', role: 'alert', 'data-export': 'no', hidden: true });
    const list = el('datalist', { id: `vv-classes-${self.name}` });
    const [why, than] = [span(t('Why')), span(t('rather than'))];
    const question = el('p', { class: 'vv-asked' }, why, of, than, rather, list, unknown);
    const drawn = map(self, {
      told: (cell, value) => [
        ...(forming(self)
          ? bestOf(self, cell)
          : likeliest(self)
            ? [t('cosine of the patch alone')]
            : meaning(self, value)),
        t('Click to select, drag to select several'),
      ],
      pick: (cell) => toggle(self, [cell]),
      hover: (cell) => likeliest(self) && markEntry(self.ui.legend, cell),
      leave: () => markEntry(self.ui.legend, -1),
    });
    const balance = el('strong', { class: 'vv-balance' });
    const parts = el('p', { class: 'vv-text vv-lines' });
    const picked = el('p', { class: 'vv-text vv-picked', role: 'status' });
    const away = button(t('Ablate'), () => takeAway(self), { class: 'vv-away', 'data-export': 'no' });
    const back = button('×', () => clear(self), {
      'data-export': 'no',
      title: t('Clear selection'),
      'aria-label': t('Clear selection'),
    });
    const balanced = div('vv-balanced', balance, away, back);
    const texts = { question, balanced, either: div('vv-either', parts, picked) };
    const [framed, head, tail] = [stack(), stack(), stack()];
    self.figure.append(framed);
    const pick = (layer, head) => chooseHead(self, layer, head);
    const made = account(self, { pick });
    const tried = effects(self, { pick });
    const wrote = writers(self);
    const least = smallest(self);
    const asks = { of, rather, list, unknown, listed: '', classes: [], labels: [], legend: legend() };
    self.below.append(head, tried.node, least.node, wrote.node, asks.legend.node, made.node, tail);
    const plot = drawn.heat.parentElement;
    const marks = Array.from({ length: 64 }, () => outline(plot, 'vv-key'));
    drags(self, drawn);
    return {
      ...asks,
      ...texts,
      framed,
      head,
      tail,
      pair: [than, rather],
      drawn,
      balance,
      parts,
      picked,
      away,
      back,
      made,
      tried,
      wrote,
      least,
      marks,
    };
  },

  draw(self) {
    const { ui, data, settings } = self;
    const { of, rather } = targets(self);
    arrange(self);
    [ui.classes, ui.labels] = [unpacked(data.classes), unpacked(data.labels)];
    showPickers(self, of, rather);
    ui.pair.forEach((node) => (node.hidden = ui.classes.length < 2)); // a single output has no pair
    const names = [of, rather].filter((one) => one !== null).map((one) => className(self, one));
    if (!self.value.second) send('explained-classes', names);
    const values = data.map.values;
    const most = reach(values);
    const chosen = chosenOf(self);
    const scale = `map/${settings.method}/${settings.chosen}/${asked(self)}`;
    // over a video, and for two checkpoints: a weak map may be nearly without colour
    const shared = still(self, scale, 0, most)[1] || 1;
    const direct = settings.method === 'ledger';
    const method = self.control('method').options.find(([name]) => name === settings.method)[1];
    const what = !direct
      ? t(method)
      : chosen.length === 2
        ? t('Layer {layer}, head {head}', { layer: chosen[0], head: chosen[1] })
        : chosen.length
          ? t('All heads of layer {layer}', { layer: chosen[0] })
          : settings.until
            ? t('All heads of layers 1 to {layer}', { layer: settings.until })
            : t('All heads, by source patch');
    const account = {
      values,
      low: -shared,
      high: shared,
      colours: 'balance',
      label: direct
        ? t('Contribution to the {sum}: negative, positive', { sum: sumName(self) })
        : t('Relevance of each patch, in the method’s own units'),
      title: !most
        ? chosenHeads(self).some((one) => ablated(self, one))
          ? t('{what}: ablated, so no patch contributes', { what })
          : t('{what}: 0 at every patch', { what })
        : most < shared / 8
          ? t('{what}: at most ±{most}', { what, most: number(most) })
          : what,
    };
    const deeper = shown(self) === 'writers';
    const painted = likeliest(self);
    if (painted) drawLegend(self, ui.legend);
    const figure = forming(self)
      ? ownAnswers(self, className(self, of))
      : painted
        ? likeliestMap(self, ui.legend)
        : deeper
          ? writtenMap(self)
          : account;
    const [explained, other] = names.map((name) => t(name));
    const pair = other ? [t('Why'), explained, t('rather than'), other] : [t('Why'), explained];
    ui.drawn.show({ ...figure, about: [figure === account && t(method), pair.join(' ')] });
    const picked = listed(settings.patches);
    ui.marks.forEach((mark, i) => ui.drawn.put(mark, picked[i] ?? -1));
    tell(self, picked, chosen);
    const show = shown(self);
    if (show === 'forming') ui.parts.textContent = worth(self);
    const alone = show === 'smallest';
    ui.wrote.node.hidden = !deeper;
    ui.least.node.hidden = !alone;
    ui.legend.node.hidden = !painted;
    ui.made.node.hidden = deeper || alone || painted;
    ui.tried.node.hidden = show !== 'effects';
    if (show !== 'effects') ui.tried.halt();
    if (!alone) ui.least.halt();
    if (!deeper) ui.wrote.held.halt();
    if (deeper) return drawWriters(self, ui.wrote);
    if (alone) return drawSmallest(self, ui.least);
    if (painted) return;
    if (show === 'effects') {
      ui.made.drawn.node.hidden = true; // the grid stays
      ui.made.said.textContent = '';
      return drawEffects(self, ui.tried);
    }
    if (show === 'forming') drawForming(self, ui.made);
    else if (show === 'paths') drawGraph(self, ui.made);
    else drawAccount(self, ui.made);
  },
});
