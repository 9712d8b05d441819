"""Named chains: our stages in the order in which other systems run theirs.

Beside `batch` and `plan`. Pass one as `stages=`. Each holds every built-in stage exactly once, so
that no field is ignored; a stage that the system lacks stands beside its own kind. A chain copies
the order only: the rules (ties, masses, what counts as output) are logitkit's. The grammar stands
before the temperature and the filters in all of them; it commutes with everything in front of it.
"""

from __future__ import annotations

from logitkit.stages import (
    DEFAULT_STAGES,
    AllowedTokenIds,
    BadWords,
    Dry,
    EpsilonCutoff,
    EtaCutoff,
    FrequencyPenalty,
    Grammar,
    LogitBias,
    MinNewTokens,
    MinP,
    NoRepeatNgram,
    PresencePenalty,
    RepetitionPenalty,
    Temperature,
    TopH,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
)

HF = DEFAULT_STAGES
"""transformers (`GenerationMixin._get_logits_processor`), and logitkit's default.

penalties and bans, the caller's processors, temperature, top-h, top-k, top-p, min-p, typical,
epsilon, eta. Differs: transformers biases, then penalises repetition, then bans n-grams and words;
bans commute with everything there, so this order gives the same logits. Presence and frequency
penalty, DRY, top-n-sigma and XTC are not in transformers.
"""

VLLM = (
    AllowedTokenIds(),
    BadWords(),
    MinNewTokens(),
    LogitBias(),
    RepetitionPenalty(),
    FrequencyPenalty(),
    PresencePenalty(),
    Dry(),
    NoRepeatNgram(),
    Grammar(),
    Temperature(),
    MinP(),
    TopK(),
    TopP(),
    TopNSigma(),
    TopH(),
    TypicalP(),
    EpsilonCutoff(),
    EtaCutoff(),
    Xtc(),
)
"""vLLM (`v1/sample/sampler.py`): min-p comes before top-k and top-p, so it sees the whole row.

allowed ids, bad words, min-tokens, logit bias; repetition, frequency and presence penalty;
temperature; min-p; top-k; top-p. Differs: vLLM breaks ties at top-k and top-p, here they are kept.
DRY, n-gram bans and the filters behind top-p are not in vLLM.
"""

SGLANG = (
    FrequencyPenalty(),
    PresencePenalty(),
    MinNewTokens(),
    RepetitionPenalty(),
    Dry(),
    NoRepeatNgram(),
    AllowedTokenIds(),
    BadWords(),
    LogitBias(),
    Grammar(),
    Temperature(),
    TopNSigma(),
    TopK(),
    TopP(),
    MinP(),
    TopH(),
    TypicalP(),
    EpsilonCutoff(),
    EtaCutoff(),
    Xtc(),
)
"""SGLang (`sampling_batch_info.py`, `layers/sampler.py`): additive penalties, then the repetition
penalty, then the bias; temperature; top-k, top-p, min-p.

Differs: SGLang without min-p cuts by top-k and top-p jointly, both on the whole distribution (here
top-p sees what top-k left, which is what SGLang does as soon as one request of the batch has a
min-p); its counts lag by a token when steps overlap. Masks, DRY, n-gram bans and the filters behind
min-p are not in SGLang.
"""

LLAMA_CPP = (
    AllowedTokenIds(),
    LogitBias(),
    BadWords(),
    NoRepeatNgram(),
    MinNewTokens(),
    RepetitionPenalty(),
    FrequencyPenalty(),
    PresencePenalty(),
    Dry(),
    Grammar(),
    TopNSigma(),
    TopK(),
    TypicalP(),
    TopP(),
    MinP(),
    TopH(),
    EpsilonCutoff(),
    EtaCutoff(),
    Xtc(),
    Temperature(),
)
"""llama.cpp (`common/sampling.cpp`): the temperature comes last, so filters see temperature 1.

logit bias; penalties; DRY; top-n-sigma; top-k; typical; top-p; min-p; XTC; temperature. Differs:
llama.cpp counts prompt tokens in all three penalties (here presence and frequency count the output
only) and looks at the last 64 tokens; its top-k and top-p cut ties. Masks by ids, n-gram bans,
top-h, epsilon and eta are not in llama.cpp.
"""
