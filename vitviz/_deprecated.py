"""Old names of modules, classes, functions and parameters, kept for one release.

`import vitviz.record.trace` returns the module object `vitviz.traces.trace` with a DeprecationWarning.
Pickles that were written under old names load. Nothing is imported until an old name is used.
"""

import sys
import warnings
from functools import wraps
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

# old package, new package, then old=new for every module in it that was renamed
_TABLE = """
vitviz vitviz attention=traces.trace command=cli experiments=engine.studies.perturbation frames=traces.display
  grid=traces.grid heap=traces.allocator languages=views.languages maps=engine.studies.saliency
  models=engine.studies.attribution progress=traces.progress readout=traces.readout runs=traces.runs
  samples=traces.samples sentence=traces.localized_text shown=traces.display stopping=traces.cancellation
  trace=traces.trace
vitviz.analyses vitviz.analyses altered=image_changes evidence=logit_account experiment=perturbation
  ledger=logit_attribution lens=logit_lens smallest=sufficient_edges tail=readout_stage writers=upstream
vitviz.analyses.relevance vitviz.analyses.saliency
vitviz.analyses.trials vitviz.analyses.faithfulness trial=evaluation verdict=ranking
vitviz.canvas vitviz.frontend
vitviz.engine vitviz.engine explained=saliency_inputs forward.interventions=ablation
  passes.interventions=ablation placed=placement tails=readout_stages
vitviz.engine.asking vitviz.engine.studies experiments=perturbation maps=saliency models=attribution
vitviz.engine.finding vitviz.engine.hub film=snapshots hub=downloads
vitviz.engine.fitting vitviz.engine.adapters assumed=assumptions filled=weight_loading kept=sidecar_config
vitviz.engine.passes vitviz.engine.forward experiments=shuffling record=tracing references=mean_ablation
  removal=patch_removal wiring=hooks
vitviz.engine.pictures vitviz.engine.images images=opening painted=patch_fill retouched=editing
vitviz.engine.reading vitviz.engine.formats given=overrides inferred=inference
vitviz.figures vitviz.charts
vitviz.figures.paper vitviz.charts.mpl pen=drawing plates=spec rooms=layout sheet=page
vitviz.prints vitviz.export cell=standalone_html
vitviz.record vitviz.traces asked=text_classes heap=allocator sentence=localized_text shown=display
  stopping=cancellation strokes=image_edits
vitviz.ui vitviz.server starting=launch
vitviz.ui.answers vitviz.server.api films=videos plain=serialization prints=figures
vitviz.ui.door vitviz.server.security door=middleware pages=page_cache turns=scheduler visitor=request_context
vitviz.ui.memory vitviz.server.services pictures=images sets=image_sets studio=analysis_service
vitviz.ui.words vitviz.server.i18n
vitviz.views vitviz.views late=lazy
vitviz.views.evidence vitviz.views.evidence made=compute printed=figure smallest=sufficiency
vitviz.views.explorer vitviz.views.explorer printed=figure
vitviz.views.tokens vitviz.views.tokens made=compute printed=figure
vitviz.views.trial vitviz.views.trial made=compute over=image_set printed=figure
"""
MODULES: dict[str, str] = {}  # old -> new; the other modules of a listed package moved with it
for _line in _TABLE.strip().replace("\n  ", " ").splitlines():
    _old, _new, *_pairs = _line.split()
    MODULES |= {_old: _new} if _old != _new else {}
    MODULES |= {f"{_old}.{a}": f"{_new}.{b}" for a, b in (one.split("=") for one in _pairs)}


_NAMES = """
vitviz Without=Ablation edge_effects=edge_ablation evidence=logit_attribution experiment=perturbation
  film=training_snapshots lens=logit_lens paths=attribution_paths relevance=saliency retouched=edit_image
  score_account=attention_score_attribution smallest_part=sufficient_edges trial=faithfulness
  writers=upstream_contributions
vitviz.analyses Effects=AblationEffects Evidence=Attribution Filters=FilterComponents
  Largest=LargestActivations Ledger=LogitTerms Tail=ReadoutStage Usual=TypicalNorms evidence=logit_attribution
  account_of=attribution_of account_of_predictions=attribution_of_predictions aligned=alignment_rotation
  basis_of=fit_basis colours_of=scores_to_colours ledger_of=logit_terms over_grid=to_grid
  over_sequence=to_sequence own_colours=patch_mean_colours place=patch_index present=present_patches
  steady=align_layers usual_norms=typical_norms whitened=whiten_scores
vitviz.analyses.depth Largest=LargestActivations Usual=TypicalNorms
vitviz.analyses.effects EdgeEffects=EdgeAblationEffects Effects=AblationEffects
vitviz.analyses.faithfulness.curves Answers=LogitsOf Curves=RemovalCurves Told=OnStep
vitviz.analyses.faithfulness.evaluation Progress=OnMethod Trial=Faithfulness
vitviz.analyses.filters Filters=FilterComponents
vitviz.analyses.image_changes Picture=ImageTensor
vitviz.analyses.logit_account Evidence=Attribution PoolLines=PoolingContributions evidence=logit_attribution
vitviz.analyses.logit_attribution Carried=LayerTerms Ledger=LogitTerms
vitviz.analyses.paths Path=AttributionPath Paths=AttributionPaths
vitviz.analyses.perturbation Asked=LogitsAtStep Experiment=Perturbation Progress=OnProgress
vitviz.analyses.query Query=QueryToken
vitviz.analyses.readout_stage Tail=ReadoutStage
vitviz.analyses.saliency.passes Path=PathGradients Relevance=SaliencyMap Weighed=WeightedAttention
vitviz.analyses.sufficient_edges SmallestPart=SufficientEdges
vitviz.analyses.target Asked=TargetLike
vitviz.analyses.upstream Lines=ByWriter Score=ScoreAttribution Writers=Upstream
vitviz.notebook Cell=StandaloneView
vitviz.surveys Seen=MeasuredImage in_batches=batch_size_for parts_of_samples=sample_crops
vitviz.surveys.labels Classes=ClassNames
vitviz.surveys.measure Seen=MeasuredImage Together=BatchMeasure
vitviz.surveys.measures Accuracy=AccuracyMeasure Distance=DistanceMeasure Entropy=EntropyMeasure
  Ledger=AttributionMeasure Lens=LogitLensMeasure PrefixMass=PrefixMassMeasure Similarity=SimilarityMeasure
  Skip=SkipMeasure SkipWhereKnown=OptionalSkipMeasure Smallest=SufficientEdgesMeasure Words=WordsMeasure
vitviz.surveys.measures.trial TrialMeasure=FaithfulnessMeasure
vitviz.surveys.parts Parts=SurveyFolder
vitviz.surveys.report Long=RowTable
vitviz.surveys.rows Measuring=Measurement Part=SurveyPart Progress=OnImage Refused=Refusal
vitviz.surveys.sources Described=SourceSummary Folder=ImageFolder Item=SourceImage Listed=ImageList
  OnHub=HubDataset Shards=TarShards Table=ImageTable
vitviz.traces.cancellation Asked=StopCheck
vitviz.traces.display Shown=NotebookDisplay Tabled=NotebookTable
vitviz.traces.image_edits Stroke=ImageEdit Strokes=ImageEdits
vitviz.traces.localized_text Sentence=LocalizedText
vitviz.traces.runs Without=Ablation
vitviz.traces.trace View=ModelInput Written=ResidualWrites
"""  # module old=new
NAMES = {}  # module.old -> new
for _line in _NAMES.strip().replace("\n  ", " ").splitlines():
    _module, *_pairs = _line.split()
    NAMES |= {f"{_module}.{a}": b for a, b in (one.split("=") for one in _pairs)}


def present(module: str, name: str, stacklevel: int = 4) -> str:
    """Return the present name of `name` in a module; warn if it differs."""
    new = NAMES.get(f"{module}.{name}", name)
    if new != name:
        warnings.warn(f"{module}.{name} is {module}.{new} now.", DeprecationWarning, stacklevel=stacklevel)
    return new


PARAMETERS = {"without": "ablation"}  # parameters of public functions: old -> new


def renamed_parameters(function):
    """Return the function wrapped so that it also accepts its parameters' old names, with a warning."""

    @wraps(function)
    def call(*args, **given):
        for old in PARAMETERS.keys() & given.keys():
            new = PARAMETERS[old]
            warnings.warn(f"{function.__name__}: {old}= is {new}= now.", DeprecationWarning, stacklevel=2)
            given[new] = given.pop(old)
        return function(*args, **given)

    return call


def current(name: str) -> str:
    """Return the present full name of the module that was once called `name`."""
    if name in MODULES:
        return MODULES[name]
    package, dot, leaf = name.rpartition(".")
    return f"{current(package)}.{leaf}" if dot else name


class Moved:
    """Import finder that resolves the old names of modules."""

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        """Return a spec, loaded by this finder, for a module's old name; None for any other module."""
        if not fullname.startswith("vitviz.") or current(fullname) == fullname:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module under its new name and return it, with a DeprecationWarning.

        Add the old names of its members.
        """
        new = current(spec.name)
        warnings.warn(f"{spec.name} is {new} now.", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        for name in NAMES:  # so that unpickling finds classes under their old names
            home, _, old = name.rpartition(".")
            if home == new:
                vars(module).setdefault(old, getattr(module, NAMES[name]))
        spec.loader_state = module.__spec__  # Python replaces it by the spec of the old name
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which Python replaced by that of the old name; run nothing."""
        module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, Moved())  # before the file finder, which would load a second copy
